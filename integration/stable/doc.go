// Package stable holds what 1.x promises (docs/VERSIONING.md) to the lists in docs/stable, each made of what really runs; and has a proxy
// of the last version serve beside one of this tree.
package stable
