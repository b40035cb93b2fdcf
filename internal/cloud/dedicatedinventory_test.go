package cloud_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// Without Robot only the inventory is known; with Robot, the inventory adds to it.
func TestInventoryOfDedicatedServers(t *testing.T) {
	entry := cloud.Machine{
		ID: 7, Name: "bm", Type: "EX44", Zone: "fsn1-dc14", Region: "fsn1",
		Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:d:7::1"), netip.MustParseAddr("10.0.1.7")},
	}
	alone := &cloud.Machines{Configured: []cloud.Machine{entry}}
	i, _ := mixed(&project{servers: []cloud.Machine{}}, alone)
	i.Family = cloud.DualStack
	got, err := i.InstanceMetadata(t.Context(), node("bm"))
	const want = "[{Hostname bm} {ExternalIP 198.51.100.7} {ExternalIP 2001:db8:d:7::1} {InternalIP 10.0.1.7}]"
	if err != nil || got.ProviderID != "hrobot://7" || got.InstanceType != "EX44" || fmt.Sprint(got.NodeAddresses) != want {
		t.Errorf("%+v, %v; want hrobot://7 at %s", got, err, want)
	}
	if exists, err := i.InstanceExists(t.Context(), node("bm", withID("hrobot://7"))); !exists || err != nil {
		t.Errorf("exists %v, %v", exists, err)
	}
	if _, err := i.InstanceMetadata(t.Context(), node("bn", withID("hrobot://8"))); err == nil || !strings.Contains(err.Error(), "another provider") {
		t.Errorf("a server that nobody knows: %v", err)
	}
	if _, err := i.InstanceMetadata(t.Context(), node("bm", withAnnotation("10.0.1.8"))); err == nil || !strings.Contains(err.Error(), "inventory") {
		t.Errorf("an address that the inventory doesn't have: %v", err)
	}

	// Of another account: Robot can't show that it is deleted.
	robots := &account{servers: []cloud.Machine{dedicated(8, "bn")}}
	i, events := mixed(&project{servers: []cloud.Machine{}}, &cloud.Machines{Robot: robots, Configured: []cloud.Machine{entry}}, node("bn", withID("hrobot://8")))
	if exists, err := i.InstanceExists(t.Context(), node("bm", withID("hrobot://7"))); !exists || err != nil || shown(events) != "" {
		t.Errorf("exists %v, %v", exists, err)
	}

	// Robot takes precedence, and the contradiction is reported.
	contradicting := entry
	contradicting.Name, contradicting.Addresses = "other", []netip.Addr{netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("10.0.1.7")}
	i, events = mixed(&project{servers: []cloud.Machine{}}, &cloud.Machines{
		Robot:      &account{servers: []cloud.Machine{dedicated(7, "bm"), dedicated(8, "bn")}},
		Configured: []cloud.Machine{contradicting},
	})
	got, err = i.InstanceMetadata(t.Context(), node("bm", withAnnotation("10.0.1.7")))
	if err != nil || got.InstanceType != "AX41-NVMe" || fmt.Sprint(got.NodeAddresses) != "[{Hostname bm} {ExternalIP 198.51.100.7} {InternalIP 10.0.1.7}]" {
		t.Errorf("%+v, %v", got, err)
	}
	select {
	case e := <-events.Events:
		for _, part := range []string{"InventoryMismatch", `name "other" is "bm" at Robot`, `type "EX44"`, "198.51.100.8 is dedicated server 8's"} {
			if !strings.Contains(e, part) {
				t.Errorf("the Event %q doesn't say %q", e, part)
			}
		}
	default:
		t.Error("no Event")
	}
}

func TestOwnPrefixOfDedicatedServers(t *testing.T) {
	old, next := dedicated(7, "bm"), dedicated(8, "bm")
	a := &account{
		known: []cloud.Machine{old}, read: time.Now().Add(-time.Minute), servers: []cloud.Machine{next},
	}
	o := &cloud.Machines{Cloud: &project{servers: []cloud.Machine{}}, Robot: a}
	own, avoid, err := o.OwnPrefix(t.Context(), node("bm", withAnnotation("2001:db8:d:8::5")))
	if err != nil || own != next.PublicIPv6 || fmt.Sprint(avoid) != "[2001:db8:d:8::1 2001:db8:d:8::5]" {
		t.Errorf("%v, %v, %v; want that of the server that is there now", own, avoid, err)
	}
	for name, n := range map[string]*corev1.Node{"by number": node("x", withID("hrobot://8")), "in the older form": node("x", withID("hcloud://bm-8"))} {
		asked := len(a.asked)
		if own, _, err := o.OwnPrefix(t.Context(), n); err != nil || own != next.PublicIPv6 ||
			len(a.asked) != asked {
			t.Errorf("%s: %v, %v, asked %q", name, own, err, a.asked[asked:])
		}
	}
	for name, n := range map[string]*corev1.Node{"no such number": node("x", withID("hrobot://9")), "no name": node("x")} {
		if _, _, err := o.OwnPrefix(t.Context(), n); !errors.Is(err, cloud.ErrOwnUnknown) {
			t.Errorf("%s: %v, want that it is unknown", name, err)
		}
	}
	o = &cloud.Machines{Cloud: o.Cloud, Robot: &account{down: errDown}}
	if _, _, err := o.OwnPrefix(t.Context(), node("bm")); !errors.Is(err, cloud.ErrOwnUnknown) {
		t.Errorf("while Robot is away: %v, want that it is unknown", err)
	}
}

// No route can lead to a dedicated server, and no Event requests its attachment.
func TestGatewaysOfDedicatedServers(t *testing.T) {
	a := &account{servers: []cloud.Machine{dedicated(7, "bm"), dedicated(8, "a")}}
	g := &cloud.Machines{Cloud: &project{servers: []cloud.Machine{server(1, "a", "10.0.0.2"), server(2, "b", "10.0.0.3")}}, Robot: a}
	got, err := g.Gateways(t.Context(), []*corev1.Node{node("bm"), node("x", withID("hrobot://9")), node("a"), node("b")}, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]string{"bm": "dedicated server 7", "x": "dedicated server 9", "a": "more than one server"} {
		if m := got.Missing[name]; m.Detached || !strings.Contains(m.Reason, part) || strings.Contains(m.Reason, "attach it") {
			t.Errorf("%s: %+v, want %q", name, m, part)
		}
	}
	if len(got.Of) != 1 || got.Of["b"] != netip.MustParseAddr("10.0.0.3") {
		t.Errorf("gateways %v, want b's", got.Of)
	}
	a.known, a.down = nil, errDown
	got, err = g.Gateways(t.Context(), []*corev1.Node{node("a"), node("b", withID("hcloud://2")), node("bm", withID("hrobot://7"))}, true)
	if err != nil || len(got.Of) != 1 || !strings.Contains(got.Missing["a"].Reason, "not known") || !strings.Contains(got.Missing["bm"].Reason, "dedicated server 7") {
		t.Errorf("%+v, %v; want b routed, and a not before dedicated servers are known", got, err)
	}
}
