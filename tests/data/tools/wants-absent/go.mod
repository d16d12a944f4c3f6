module lockstep.dev/tests/wants-absent

go 1.26

require example.test/absent v1.0.0
