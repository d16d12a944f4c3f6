// The plugin of pulumi-kubernetes. Its own main embeds files that are made in its
// repository and ignored by git, so it does not build from the module; this one embeds
// the two that the module does carry, laid beside it by `lockstep tools build`.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

func main() {
	provider.Serve("kubernetes", version.Version, schema, mapping)
}
