module lockstep.dev/tests/broken

go 1.26
