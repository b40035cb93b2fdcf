package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// account is a list of dedicated servers, as it was last read and as it is.
type account struct {
	known   []cloud.Machine // to all readers; nil: it was never read
	read    time.Time       // time of that read
	servers []cloud.Machine
	down    error
	getErr  error
	asked   []string
}

func (a *account) List(_ context.Context, since time.Time) ([]cloud.Machine, error) {
	if a.known != nil && !a.read.Before(since) {
		return a.known, nil
	}
	a.asked = append(a.asked, "list")
	if a.down != nil {
		return nil, a.down
	}
	a.known, a.read = a.servers, time.Now()
	return a.known, nil
}

func (a *account) Get(_ context.Context, number int64) (cloud.Machine, error) {
	a.asked = append(a.asked, fmt.Sprint("get ", number))
	if a.getErr != nil {
		return cloud.Machine{}, a.getErr
	}
	if i := slices.IndexFunc(a.servers, func(d cloud.Machine) bool { return d.ID == number }); i >= 0 {
		return a.servers[i], nil
	}
	return cloud.Machine{}, fmt.Errorf("dedicated server %d: %w", number, cloud.ErrNoServer)
}

var errDown = errors.New("503")

func dedicated(number int64, name string) cloud.Machine {
	return cloud.Machine{
		Dedicated: true, ID: number, Name: name, Type: "AX41-NVMe", Zone: "fsn1-dc14", Region: "fsn1",
		PublicIPv4: netip.AddrFrom4([4]byte{198, 51, 100, byte(number)}),
		PublicIPv6: netip.MustParsePrefix(fmt.Sprintf("2001:db8:d:%d::/64", number)),
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{198, 51, 100, byte(number)}),
			netip.AddrFrom4([4]byte{203, 0, 113, byte(number)}),
		},
	}
}

// mixed returns Instances for both kinds, in a network of 10.0.0.0/8.
func mixed(
	p *project, x *cloud.Machines, nodes ...*corev1.Node,
) (*cloud.Instances, *record.FakeRecorder) {
	i := instances(p, nodes...)
	x.Cloud = p
	i.Machines = x
	i.NetworkRange = func() netip.Prefix { return netip.MustParsePrefix("10.0.0.0/8") }
	return i, i.Recorder.(*record.FakeRecorder)
}

// shown returns the reasons of the Events so far.
func shown(r *record.FakeRecorder) string {
	var reasons []string
	for {
		select {
		case e := <-r.Events:
			reasons = append(reasons, strings.Fields(e)[1])
		default:
			return strings.Join(reasons, " ")
		}
	}
}

func TestMatchingBothKinds(t *testing.T) {
	servers := []cloud.Machine{server(1, "a", "10.0.0.2"), server(2, "both", "10.0.0.3"), server(3, "c", "10.0.0.4")}
	known := []cloud.Machine{dedicated(7, "bm"), dedicated(8, "both"), dedicated(9, "twin"), dedicated(10, "twin"), dedicated(11, "")}
	for _, c := range []struct {
		name  string
		node  *corev1.Node
		want  string // provider ID or part of the error
		event string
	}{
		{"by number, whatever the name", node("a", withID("hrobot://7")), "hrobot://7", ""},
		{"by number in the older form", node("x", withID("hcloud://bm-7")), "hcloud://bm-7", ""},
		{"the number outranks name and address", node("bm", withID("hrobot://8"), withIP("198.51.100.7")), "hrobot://8", ""},
		{"no such number", node("bm", withID("hrobot://77")), "no matching server", ""},
		{"no number", node("bm", withID("hrobot://x")), "want hrobot://", ""},
		{"the cloud's ID is the cloud's", node("both", withID("hcloud://2")), "hcloud://2", ""},
		{"another provider", node("bm", withID("aws:///i-7")), "another provider", ""},
		{"a cloud server's name", node("a"), "hcloud://1", ""},
		{"a dedicated server's name", node("bm"), "hrobot://7", ""},
		{"its name and its main address", node("bm", withIP("198.51.100.7")), "hrobot://7", ""},
		{"its name, a private address", node("bm", withIP("10.0.1.7")), "hrobot://7", ""},
		{"by main address", node("x", withIP("198.51.100.11")), "hrobot://11", ""},
		{"by another address", node("x", withAnnotation("203.0.113.7")), "hrobot://7", ""},
		{"by its own prefix", node("x", withAnnotation("2001:db8:d:7::7")), "hrobot://7", ""},
		{"a name in both", node("both"), "more than one server", "ServerAmbiguous"},
		{"a name in both, the address agrees with one", node("both", withIP("198.51.100.8")), "more than one server", "ServerAmbiguous"},
		{"the cloud's name, the other's address", node("a", withIP("198.51.100.7")), "more than one server", "ServerAmbiguous"},
		{"the other's name, an address in the network", node("bm", withIP("10.0.0.2")), "more than one server", "ServerAmbiguous"},
		{"the other's name, a cloud server's public address", node("bm", withIP("192.0.2.3")), "more than one server", "ServerAmbiguous"},
		{"the other's name, a cloud server's own prefix", node("bm", withIP("2001:db8:3::9")), "more than one server", "ServerAmbiguous"},
		{"two dedicated names", node("twin"), "more than one server", "ServerAmbiguous"},
		{"two dedicated addresses", node("x", withIP("198.51.100.7"), withIP("203.0.113.8")), "more than one server", "ServerAmbiguous"},
		{"a name and another's address", node("bm", withIP("198.51.100.8")), "more than one server", "ServerAmbiguous"},
		{"nothing fits", node("x"), "no matching server", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			i, events := mixed(&project{servers: servers}, &cloud.Machines{Robot: &account{servers: known}})
			got, err := i.InstanceMetadata(t.Context(), c.node)
			is := fmt.Sprint(err)
			if err == nil {
				is = got.ProviderID
			}
			if e := shown(events); !strings.Contains(is, c.want) || e != c.event {
				t.Errorf("got %q, Events %q; want %q, %q", is, e, c.want, c.event)
			}
		})
	}
}

// While dedicated servers are unknown, Nodes of the cloud are matched all the same, and no missing
// server counts as deleted.
func TestMatchingWhileRobotIsAway(t *testing.T) {
	servers := []cloud.Machine{server(1, "a", "10.0.0.2")}
	for _, c := range []struct {
		name  string
		known []cloud.Machine
		node  *corev1.Node
		want  string
		asked int
	}{
		{"a cloud server's ID doesn't ask", nil, node("a", withID("hcloud://1")), "hcloud://1", 0},
		{"no list was ever read", nil, node("a"), "not yet", 1},
		{"but the cloud knows name and address", nil, node("a", withIP("10.0.0.2")), "hcloud://1", 1},
		{"but the cloud knows name and public address", nil, node("a", withIP("192.0.2.1")), "hcloud://1", 1},
		{"and the cloud knows the address alone", nil, node("x", withIP("10.0.0.2")), "not yet", 1},
		{"nor for a number", nil, node("bm", withID("hrobot://7")), "not yet", 1},
		{"an older list, a cloud server's name", []cloud.Machine{dedicated(7, "bm")}, node("a"), "hcloud://1", 0},
		{"an older list says that two could be meant", []cloud.Machine{dedicated(7, "a")}, node("a"), "not yet", 1},
		{"an older list has a predecessor's name", []cloud.Machine{dedicated(7, "bm")}, node("bm"), "not yet", 1},
		{"an older list has nobody of the name", []cloud.Machine{dedicated(7, "bm")}, node("x"), "not yet", 2},
		{"an older list has the number", []cloud.Machine{dedicated(7, "bm")}, node("x", withID("hrobot://7")), "hrobot://7", 0},
		{"an older list lacks the number", []cloud.Machine{dedicated(7, "bm")}, node("x", withID("hrobot://8")), "not yet", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &account{known: c.known, read: time.Unix(1, 0), down: errDown}
			i, _ := mixed(&project{servers: servers}, &cloud.Machines{Robot: a})
			got, err := i.InstanceMetadata(t.Context(), c.node)
			is := fmt.Sprint(err)
			if err == nil {
				is = got.ProviderID
			}
			if !strings.Contains(is, c.want) || len(a.asked) > c.asked {
				t.Errorf("got %q after %q; want %q after %d requests", is, a.asked, c.want, c.asked)
			}
		})
	}
}

// A dedicated server was replaced by another of the same name.
func TestADedicatedNameIsLookedUpInAListAsNewAsTheNode(t *testing.T) {
	a := &account{known: []cloud.Machine{dedicated(7, "bm")}, read: time.Unix(1, 0), servers: []cloud.Machine{dedicated(8, "bm")}}
	i, _ := mixed(&project{servers: []cloud.Machine{}}, &cloud.Machines{Robot: a})
	got, err := i.InstanceMetadata(t.Context(), node("bm"))
	if err != nil || got.ProviderID != "hrobot://8" {
		t.Errorf("%+v, %v; want the server that is there now", got, err)
	}
	if _, err := i.InstanceMetadata(t.Context(), node("bm")); err != nil || len(a.asked) != 1 {
		t.Errorf("%v, asked %q; want one list for as long as nothing newer is needed", err, a.asked)
	}
}

// The API server's creation times are in seconds: a list that was read earlier in the same second
// lacks a server that was added in between.
func TestAListOfTheNodesOwnSecondMayBeOlderThanTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{known: []cloud.Machine{}, read: time.Now().Add(300 * time.Millisecond), servers: []cloud.Machine{dedicated(8, "bm")}}
		i, _ := mixed(&project{servers: []cloud.Machine{}}, &cloud.Machines{Robot: a})
		n := node("bm")
		n.CreationTimestamp.Time = time.Now() // in this second
		time.Sleep(800 * time.Millisecond)
		got, err := i.InstanceMetadata(t.Context(), n)
		if err != nil || got.ProviderID != "hrobot://8" {
			t.Errorf("%+v, %v; want the server that came before its Node", got, err)
		}
	})
}

func TestDedicatedInstanceExists(t *testing.T) {
	gone, other := node("gone", withID("hrobot://7"), withCondition(corev1.NodeReady, corev1.ConditionUnknown)), node("other", withID("hcloud://bm-8"))
	seven, eight, strange := dedicated(7, "gone"), dedicated(8, "other"), dedicated(99, "strange")
	both := []cloud.Machine{seven, eight}
	for _, c := range []struct {
		name    string
		before  []cloud.Machine // the previous list; nil: there was none
		account account         // the current one
		exists  bool
		event   string
	}{
		{"there", nil, account{servers: both}, true, ""},
		{"renamed at Robot", both, account{servers: []cloud.Machine{dedicated(7, "else"), eight}}, true, ""},
		{"gone", both, account{servers: []cloud.Machine{eight}}, false, ""},
		{"the only one, and gone", []cloud.Machine{seven}, account{servers: []cloud.Machine{}}, true, "ServerAbsenceUnproved"},
		{"credentials of another account", both, account{servers: []cloud.Machine{strange}}, true, "ServerAbsenceUnproved"},
		{"an outage", both, account{down: errDown}, true, ""},
		{"an outage from the beginning", nil, account{down: errDown}, true, ""},
		{"an outage before the second question", both, account{servers: []cloud.Machine{eight}, getErr: errDown}, true, ""},
		{"it was never listed", []cloud.Machine{eight}, account{servers: []cloud.Machine{eight}}, true, "ServerAbsenceUnproved"},
		{"another account", nil, account{servers: []cloud.Machine{strange}}, true, "ServerAbsenceUnproved"},
		{"an empty account", nil, account{servers: []cloud.Machine{}}, true, "ServerAbsenceUnproved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &account{servers: c.before}
			i, events := mixed(&project{listErr: errors.New("the cloud was asked")}, &cloud.Machines{Robot: a}, gone, other)
			if c.before != nil {
				_, _ = i.InstanceExists(t.Context(), other) // reads it
				shown(events)
				c.account.known, c.account.read = c.before, time.Unix(1, 0)
			}
			*a = c.account
			exists, err := i.InstanceExists(t.Context(), gone)
			if e := shown(events); exists != c.exists || e != c.event || (err != nil) != (c.event != "") {
				t.Errorf("exists %v, %v, Events %q; want %v, %q (asked %q)", exists, err, e, c.exists, c.event, a.asked)
			}
			if off, err := i.InstanceShutdown(t.Context(), gone); off || err != nil {
				t.Errorf("shut down %v, %v", off, err)
			}
		})
	}
	t.Run("a list that isn't whole", func(t *testing.T) {
		a := &account{servers: both}
		i, _ := mixed(&project{}, &cloud.Machines{Robot: a}, gone, other)
		if _, err := i.InstanceExists(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		*a = account{known: []cloud.Machine{eight}, read: time.Now().Add(time.Hour), servers: both}
		if exists, err := i.InstanceExists(t.Context(), gone); !exists || err != nil {
			t.Errorf("exists %v, %v although Robot has the server", exists, err)
		}
	})
}
