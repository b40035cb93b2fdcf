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

// rare are the kinds of steps that a random walk seldom takes: too many of them keep it from going
// far.
var rare = []string{"start", "Node is deleted", "Node is set by hand", "slow write", "write fails", "load bit by bit"}

// exploreLength is the number of steps of a random walk.
const exploreLength = 200

type digest [16]byte

func (c *situation) digest() digest {
	sum := sha256.Sum256([]byte(c.String()))
	return digest(sum[:16])
}

// arrivalOf is the first step that led to a situation.
type arrivalOf struct {
	from digest
	step string
}

// An exploration is the result of exploring a scope.
type exploration struct {
	scope  *scope
	seen   map[digest]arrivalOf
	whole  bool // all situations were visited
	ended  int  // situations from which the processes were run to a rest
	wrong  string
	course []string // the steps that led to the violation
}

// explore visits the situations of a scope breadth first, up to a limit.
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

// walk takes random steps through the situations of a scope.
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

// TestExplore visits the situations of every scope. In every order of the steps of two processes,
// of Nodes, and of requests in flight, no two Nodes get overlapping podCIDRs, and a process that
// continues alone completes all Nodes.
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

// TestExploreWalks goes far from the start of every scope, and with more faults.
func TestExploreWalks(t *testing.T) {
	for _, sc := range exploreScopes() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			sc.faults += 3
			sc.starts = slices.Concat(sc.starts, sc.starts)
			for seed := range uint64(*exploreWalks) {
				if wrong, course := walk(sc, seed, exploreLength); wrong != "" {
					t.Fatalf("seed %d: %s\nafter:\n%s", seed, wrong, strings.Join(course, "\n"))
				}
			}
		})
	}
}
