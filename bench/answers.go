package main

import (
	"fmt"
	"math"
	"runtime"
	"strings"
)

// The page answers first, in sentences that are made of the figures.

// say is a sentence with figures, "" where one of them is missing.
func say(sentence string, figures ...float64) string {
	words := make([]any, len(figures))
	for i, v := range figures {
		if v == 0 {
			return ""
		}
		words[i] = spoken(v)
	}
	return fmt.Sprintf(sentence, words...)
}

// spoken is a figure as people say it, with three digits: 76,700.
func spoken(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f million", v/1e6)
	case v >= 1e3:
		step := math.Pow(10, math.Floor(math.Log10(v))-2)
		n := int(math.Round(v/step) * step)
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	case v >= 20:
		return whole(v)
	}
	return figure(v)
}

// paragraph are sentences, each after the other.
func paragraph(sentences ...string) string {
	return strings.TrimSpace(strings.Join(sentences, " "))
}

// short is what somebody reads who has ten seconds.
func (rep *report) short() (all string) {
	us := func(l load) sample { return rep.median(lockproxy, l) }
	redissons := func(l load) sample { return rep.median(redisson, l) }
	facts := func(name string) float64 { return rep.factOf(name) }
	for _, sentence := range []string{
		say("**Latency**: a lone client's GET takes %s µs through lockproxy and %s µs without; through a program that only copies bytes, %s µs.",
			us(getOne).P50, rep.median(direct, getOne).P50, rep.median(byteRelay, getOne).P50),
		say("**CPU**: a GET costs lockproxy %s µs, twemproxy %s µs; in pipelines of 16, %s and %s µs.",
			us(getP1).ProxyCPU, rep.median(twemproxy, getP1).ProxyCPU, us(getP16).ProxyCPU, rep.median(twemproxy, getP16).ProxyCPU),
		say("**Ceiling**: so one CPU of lockproxy is enough for %s GETs a second, or %s in pipelines, and for %s locks taken and given back.",
			ratio(1e6, us(getP1).ProxyCPU), ratio(1e6, us(getP16).ProxyCPU), ratio(1e6, us(manyPairs).ProxyCPU)),
		say("**Locks**: 50 clients take and give back %s a second; with Redisson %s.", us(manyPairs).PerSecond, redissons(manyPairs).PerSecond),
		say("**Waiting**: one lock that 128 clients want changes hands %s times a second; with Redisson %s times.",
			us(contended).Changes, redissons(contended).Changes),
		say("**Memory**: %s MB at the start, %s KB for each connection, %s KB for each held lock.",
			facts(memoryAtStart), facts(memoryClient), facts(memoryLock)),
	} {
		if sentence != "" {
			all += "- " + sentence + "\n"
		}
	}
	return all
}

func (rep *report) factOf(name string) float64 {
	for _, f := range rep.facts {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}

func (rep *report) costAnswer() string {
	us, without := rep.median(lockproxy, getP1), rep.median(direct, getP1)
	return paragraph(
		say(fmt.Sprintf("Where clients, Redis and lockproxy share %d CPUs, 50 clients get ", runtime.NumCPU())+"%s GETs a second without lockproxy and %s through it.",
			without.PerSecond, us.PerSecond),
		say("Redis has less to do: a GET takes %s µs of its CPU instead of %s, since clients share its connections.", us.RedisCPU, without.RedisCPU))
}

func (rep *report) proxiesAnswer() string {
	times := func(l load, other string) float64 { return rep.over(l, lockproxy, other, cpuOfProxy) }
	sentences := []string{say("A GET costs %s times twemproxy's CPU.", times(getP1, twemproxy)), say("Where clients pipeline 16, it costs %s times twemproxy's.", times(getP16, twemproxy))}
	for _, other := range []string{predixy, envoy, byteRelay} {
		sentences = append(sentences, say("Of "+other+"'s it is %s and %s times in these two cases.", times(getP1, other), times(getP16, other)))
	}
	return paragraph(append(sentences, say("Before a cluster of three it costs %s and %s times what it does before one Redis.",
		rep.over(getP1, clusterLockproxy, lockproxy, cpuOfProxy), rep.over(getP16, clusterLockproxy, lockproxy, cpuOfProxy)))...)
}

func (rep *report) librariesAnswer() string {
	return paragraph(
		say("50 clients take and give back %s times as many locks as with Redisson, and a lock that 128 want changes hands %s times as often.",
			rep.over(manyPairs, lockproxy, redisson, rate), rep.over(contended, lockproxy, redisson, changes)),
		say("Libraries that do less for a lock are faster where nobody waits (rueidislock takes %s a second): no hop, shorter scripts.",
			rep.median(rueidislock, manyPairs).PerSecond),
		say("Where many wait, most of them poll: a lock of redislock's changes hands %s times a second, of redsync's %s times; of rueidislock's, "+
			"which does not poll, %s times.",
			rep.median(redislock, contended).Changes, rep.median(redsync, contended).Changes, rep.median(rueidislock, contended).Changes))
}

func (rep *report) stepsAnswer() string {
	s, ratios := scriptFigures(rep.stepSamples(stepPair))
	return paragraph(say("To take a lock and give it back keeps Redis' thread %s µs in scripts, %s times as long as Redisson's: one Redis has time for %s a second at most.",
		s.Ours, ratios[1], ratio(1e6, s.Ours)))
}

func (rep *report) endAnswer() string {
	return paragraph(say("One Redis runs at most %s pairs of these scripts a second here, with nothing before it.", rep.median(sameScripts, manyPairs).PerSecond),
		"The masters of a cluster share that work.",
		say("One lock that all want ends at a round trip and a script for each hand-off: the least program that does just that hands it on %s times a second.",
			rep.median(leastLine, contended).Changes))
}
