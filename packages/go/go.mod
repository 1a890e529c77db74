module redlatch.dev/redlatchtest

go 1.21
