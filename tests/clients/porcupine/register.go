package main

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// register is the model of a key that is written, read and deleted. Its state is the value, "" for none.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		asked := input.(call)
		switch asked.Ask {
		case "set":
			return true, asked.Token
		case "del":
			return asked.Answer == "" || (asked.Answer == "yes") == (state != ""), ""
		}
		return asked.Holder == state, state
	},
}

// accesses are the calls that say something of the key. A write without an answer may be carried out at any time later.
func accesses(calls []call) []porcupine.Operation {
	var all []porcupine.Operation
	for _, asked := range calls {
		if asked.Answer == "" {
			asked.HeardNs = math.MaxInt64
		}
		if asked.Answer != "" || asked.Ask != "get" {
			all = append(all, porcupine.Operation{Input: asked, Call: asked.SentNs, Return: asked.HeardNs})
		}
	}
	return all
}
