module lockstep.dev/tests/greeter

go 1.26
