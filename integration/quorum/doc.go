// Package quorum tests locks that a majority of independent nodes gives.
package quorum
