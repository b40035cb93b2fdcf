package connectivity

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// result is the result of a path between nodes a, b and c.
func result(path Path, kind Kind, from, to string, change ...func(*Result)) Result {
	r := Result{
		Trial: Trial{Path: path, Kind: kind, From: from, To: to, At: netip.MustParseAddrPort("10.244.0.2:8080")},
		Took:  300,
	}
	if kind == MTU {
		r.Carried, r.Interface, r.Took = 1500, 1500, 0
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func failed(f Failure) func(*Result)      { return func(r *Result) { r.Failure = f } }
func carries(bytes int) func(*Result)     { return func(r *Result) { r.Carried = bytes } }
func after(d time.Duration) func(*Result) { return func(r *Result) { r.Took = d.Microseconds() } }
func over6(r *Result)                     { r.At = netip.MustParseAddrPort("[fd00::2]:8080") }
func mesh(kinds ...Kind) (results []Result) {
	for _, from := range []string{"a", "b", "c"} {
		for _, to := range []string{"a", "b", "c"} {
			for _, kind := range kinds {
				results = append(results, result(Pod, kind, from, to))
			}
		}
	}
	return results
}

// spoil changes the results that match.
func spoil(results []Result, change func(*Result), fits func(Result) bool) []Result {
	for i := range results {
		if fits(results[i]) {
			change(&results[i])
		}
	}
	return results
}

func TestReport(t *testing.T) {
	to := func(node string) func(Result) bool {
		return func(r Result) bool { return r.To == node && r.From != node }
	}
	for _, c := range []struct {
		name    string
		results []Result
		untried []Untried
		outcome int
		what    []string // beginnings of the findings
	}{
		{name: "all is open", results: mesh(TCP, UDP, MTU), outcome: AllOpen},
		{name: "nothing was tried", outcome: NotTried},
		{name: "a node was not tried", results: mesh(TCP), untried: []Untried{{"d", "not Ready"}}, outcome: NotTried},
		{
			name:    "nobody reaches the pods of a node",
			results: spoil(mesh(TCP, UDP), failed(Silent), to("b")), outcome: SomethingClosed,
			what: []string{"pods of different nodes: closed over IPv4: to b alone, such as a → b (tcp no answer at 10.244.0.2:8080)"},
		},
		{
			name:    "closed and not tried: what is closed counts",
			results: spoil(mesh(TCP), failed(Silent), to("b")), untried: []Untried{{"d", "not Ready"}}, outcome: SomethingClosed,
			what: []string{"pods of different nodes: closed"},
		},
		{
			name:    "pods of each node don't reach each other",
			results: spoil(mesh(TCP), failed(Unreachable), func(r Result) bool { return r.From == r.To }),
			outcome: SomethingClosed,
			what:    []string{"pods of the same node: closed over IPv4: everywhere, such as a → a"},
		},
		{
			name:    "another pod answers",
			results: spoil(mesh(TCP), failed(Stranger), to("c")), outcome: SomethingClosed,
			what: []string{"pods of different nodes: another pod responds over IPv4: to c alone"},
		},
		{
			name:    "a link carries less",
			results: spoil(mesh(MTU), carries(1450), to("c")), outcome: SomethingClosed,
			what: []string{"pods of different nodes: full-sized packets are lost over IPv4: to c alone, such as a → c (mtu 1450 < 1500"},
		},
		{
			name: "paths and families are apart",
			results: []Result{
				result(Outside, Dial, "a", "", failed(Refused)), result(HealthCheck, HTTP, "a", "b", failed(Status)),
				result(NodePort, TCP, "a", "b", failed(Silent)), result(NodePort, TCP, "a", "b", failed(Silent), over6), result(Service, TCP, "a", "", failed(Silent)),
			},
			outcome: SomethingClosed,
			what: []string{
				"the way to a Service's ClusterIP: closed over IPv4", "node ports: closed over IPv4", "node ports: closed over IPv6",
				"node ports for health checks: the response is wrong over IPv4", "the way to the outside: closed over IPv4",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReport([]string{"c", "a", "b"}, c.untried, c.results)
			if r.Outcome() != c.outcome {
				t.Errorf("the outcome is %v, want %v", r.Outcome(), c.outcome)
			}
			var what []string
			for _, f := range r.Findings {
				what = append(what, f.What)
				if f.Remedy == "" {
					t.Errorf("%s: no remedy", f.What)
				}
			}
			if !slices.EqualFunc(what, c.what, strings.HasPrefix) {
				t.Fatalf("findings\n%s\nwant\n%s", strings.Join(what, "\n"), strings.Join(c.what, "\n"))
			}
		})
	}
}

// The order of results, which depends on their arrival, changes nothing.
func TestReportOfAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	results := spoil(mesh(TCP, UDP, MTU), failed(Silent), func(r Result) bool { return r.To == "b" && r.Kind != UDP })
	want := NewReport([]string{"a", "b", "c"}, nil, results)
	for range 20 {
		random.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
		if got := NewReport([]string{"c", "b", "a"}, nil, results); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant\n%+v", got, want)
		}
	}
}

func TestCellsShowTheWorst(t *testing.T) {
	for _, c := range []struct {
		results []Result
		want    string
	}{
		{[]Result{result(Pod, MTU, "a", "b"), result(Pod, TCP, "a", "b", after(2500*time.Microsecond)), result(Pod, UDP, "a", "b", after(2500*time.Microsecond))}, "open 2.5 ms"},
		{[]Result{result(Pod, MTU, "a", "b", carries(1400)), result(Pod, TCP, "a", "b"), result(Pod, UDP, "a", "b")}, "narrow mtu 1400 < 1500"},
		{[]Result{result(Pod, MTU, "a", "b", carries(1400)), result(Pod, TCP, "a", "b", failed(Refused)), result(Pod, UDP, "a", "b")}, "closed tcp refused"},
		{[]Result{result(Pod, TCP, "a", "b", after(250*time.Millisecond))}, "open 250 ms"},
	} {
		all := NewReport(nil, nil, c.results).Cells
		if len(all) != 1 {
			t.Fatalf("%d cells, want 1", len(all))
		}
		if got := fmt.Sprint(all[0].State, " ", all[0].Text); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
