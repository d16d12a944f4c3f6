module lockstep.dev/tests/hello

go 1.26

require example.test/words v1.2.3


