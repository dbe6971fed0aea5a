package testredis

import "flag"

// atATime is how many tests run side by side: they wait for servers most of the time, so more than there are processors.
const atATime = "6"

// SideBySide has more parallel tests run at a time than there are processors, unless -parallel says how many. TestMain calls it.
func SideBySide() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", atATime) // fails for numbers only that are none
	}
}
