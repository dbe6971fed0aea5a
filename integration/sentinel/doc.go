// Package sentinel tests lockproxy in front of a master that Sentinels watch over, while they choose another.
package sentinel
