module redlatch.dev/locks/tests

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0
	redlatch.dev/locks v0.1.0
	redlatch.dev/redlatchtest v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace (
	redlatch.dev/locks => ../
	redlatch.dev/redlatchtest => ../../../go
)
