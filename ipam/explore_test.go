package ipam

import (
	"crypto/sha256"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var (
	exploreStates = flag.Int("explore-states", 6000/slowdown, "how many situations of each scope to explore")
	exploreWalks  = flag.Int("explore-walks", 30/slowdown, "how many random walks through each scope's situations to go")
)

// rare are the kinds of steps that lead far only if not much of the kind happens.
var rare = []string{"start", "Node is deleted", "Node is set by hand", "relieve", "slow write", "write fails", "load bit by bit"}

// exploreLength is how many steps a random walk has.
const exploreLength = 200

type digest [16]byte

func (c *situation) digest() digest {
	sum := sha256.Sum256([]byte(c.String()))
	return digest(sum[:16])
}

// arrivalOf is how a situation was reached first.
type arrivalOf struct {
	from digest
	step string
}

// An exploration is what was found out about a scope.
type exploration struct {
	scope  *scope
	seen   map[digest]arrivalOf
	whole  bool // there are no other situations
	ended  int  // situations that were followed to a rest
	wrong  string
	course []string // the steps that led to what is wrong
}

// explore goes through the situations of a scope, those that take fewer steps first.
func explore(sc *scope, limit int) *exploration {
	x := &exploration{scope: sc, seen: map[digest]arrivalOf{}}
	first := sc.begin()
	x.seen[first.digest()] = arrivalOf{}
	for queue := []*situation{first}; len(queue) > 0; queue = queue[1:] {
		if len(x.seen) >= limit {
			return x
		}
		s, from := queue[0], queue[0].digest()
		queue[0] = nil
		for _, next := range sc.steps(s) {
			c := next.then()
			id := c.digest()
			if _, known := x.seen[id]; known {
				continue
			}
			x.seen[id] = arrivalOf{from, next.String()}
			if c.wrong == "" && id[0] == 0 && sc.flaw == sound {
				x.ended++
				c.wrong = sc.atRest(c)
			}
			if c.wrong != "" {
				x.wrong, x.course = c.wrong, x.courseTo(id)
				return x
			}
			queue = append(queue, c)
		}
	}
	x.whole = true
	return x
}

func (x *exploration) courseTo(id digest) (course []string) {
	for at := x.seen[id]; at.step != ""; at = x.seen[at.from] {
		course = append(course, at.step)
	}
	slices.Reverse(course)
	return course
}

// walk goes one random way through a scope's situations.
func walk(sc *scope, seed uint64, length int) (wrong string, course []string) {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := sc.begin()
	for range length {
		all := sc.steps(s)
		if len(all) == 0 {
			break
		}
		next := all[rng.IntN(len(all))]
		if slices.Contains(rare, next.kind) && rng.IntN(5) > 0 {
			continue
		}
		c := next.then()
		if c.wrong == "" && c.String() == s.String() {
			continue
		}
		course = append(course, next.String())
		if s = c; s.wrong != "" {
			return s.wrong, course
		}
	}
	return sc.atRest(s), course
}

// TestExplore goes through the situations of every scope: wherever the steps of two processes, of
// Nodes and of what is on its way lead, no two Nodes get what overlaps, and a process that goes on
// alone sets everything right.
func TestExplore(t *testing.T) {
	for _, sc := range exploreScopes() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			x := explore(sc, *exploreStates)
			t.Logf("%d situations, all: %v; %d followed to a rest", len(x.seen), x.whole, x.ended)
			if x.wrong != "" {
				t.Fatalf("%s\nafter:\n%s", x.wrong, strings.Join(x.course, "\n"))
			}
		})
	}
}

// TestExploreWalks goes far from where every scope begins, where more goes wrong.
func TestExploreWalks(t *testing.T) {
	for _, sc := range exploreScopes() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			sc.faults += 3
			sc.relieves *= 2
			sc.starts = slices.Concat(sc.starts, sc.starts)
			for seed := range uint64(*exploreWalks) {
				if wrong, course := walk(sc, seed, exploreLength); wrong != "" {
					t.Fatalf("seed %d: %s\nafter:\n%s", seed, wrong, strings.Join(course, "\n"))
				}
			}
		})
	}
}
