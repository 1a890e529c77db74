//go:build redlatch_embedded

package examples

import (
	_ "embed"

	"redlatch.dev/redlatchtest"
)

//go:embed redlatch
var program []byte

func init() { redlatchtest.Carry(program) }
