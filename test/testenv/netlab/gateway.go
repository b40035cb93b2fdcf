//go:build linux

package netlab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Gateway is the behavior of the vSwitch's gateway where the provider documents none. The zero
// value is the behavior that Underlay's documentation assumes.
type Gateway struct {
	// RefuseProxied ignores ARP replies that one host sends for another, as servers send them for
	// their pods.
	RefuseProxied bool
	// AnySource forwards packets from the vSwitch regardless of their source. Otherwise packets
	// with a source outside the subnet are dropped, as the network's own gateway does.
	AnySource bool
	// Neighbors limits the hosts in its neighbor table; 0: no limit. Replies of more hosts are
	// dropped until it forgets some. A host that resolves the gateway itself is always added.
	//
	// The kernel's own limits (gc_thresh1 to 3) can't be used: they aren't per namespace, but count
	// the neighbors of the whole machine.
	Neighbors int
	// Forgets is the interval at which it forgets all hosts, also those that it has just sent
	// packets to; 0: never, so that entries age as in the kernel, which probes a neighbor before it
	// removes it.
	Forgets time.Duration
}

// roomy is the size of a table that is never full.
const roomy = 1 << 16

// replied is the nftables table by which the gateway accepts or drops ARP replies.
const replied = "gateway"

// vSwitchPorts matches the router's ports at vSwitches.
const vSwitchPorts = vSwitch + "*"

// script replaces the table, which also removes all hosts from its set.
func (g Gateway) script() string {
	var out strings.Builder
	fmt.Fprintf(&out, "add table arp %[1]s\ndelete table arp %[1]s\ntable arp %[1]s {\n", replied)
	fmt.Fprintf(&out, "\tcounter answers {}\n")
	fmt.Fprintf(&out, "\tset known { type ipv4_addr; size %d; flags dynamic; }\n", cmp.Or(g.Neighbors, roomy))
	fmt.Fprintf(&out, "\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n")
	fmt.Fprintf(&out, "\t\tiifname != %q accept\n", vSwitchPorts)
	if g.RefuseProxied {
		fmt.Fprintf(&out, "\t\tarp operation reply arp saddr ip %s drop\n", vSwitchPods)
	}
	fmt.Fprintf(&out, "\t\tupdate @known { arp saddr ip } counter name answers accept\n") // no match if full
	fmt.Fprintf(&out, "\t\tarp operation reply drop\n\t}\n}\n")
	return out.String()
}

// aging removes hosts repeatedly until it is stopped.
type aging struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func (a *aging) stop() {
	if a != nil {
		a.cancel()
		a.ended.Wait()
	}
}

// SetGateway replaces the behavior of the vSwitch's gateway and empties its neighbor table.
func (f *Lab) SetGateway(ctx context.Context, g Gateway) error {
	c := f.cloud
	f.mu.Lock()
	old := f.aging
	f.aging = nil
	f.mu.Unlock()
	old.stop()
	c.mu.Lock()
	c.path.vSwitchAnySource = g.AnySource
	err := c.set(ctx, c.layout())
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := c.ns.Feed(ctx, g.script(), "nft", "-f", "-"); err != nil {
		return err
	}
	if err := f.ForgetNeighbors(ctx); err != nil || g.Forgets == 0 {
		return err
	}
	a := &aging{}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.ended.Go(func() { f.forget(ctx, g.Forgets) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.aging = a
	return nil
}

func (f *Lab) forget(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.ForgetNeighbors(ctx); err != nil && ctx.Err() == nil {
			f.cloud.fail(fmt.Errorf("the vSwitch's gateway doesn't forget: %w", err))
			return
		}
	}
}

// ForgetNeighbors makes the vSwitch's gateway resolve all hosts again. Packets that wait for a
// reply keep waiting.
func (f *Lab) ForgetNeighbors(ctx context.Context) error {
	_, emptied := f.cloud.ns.Run(ctx, "nft", "flush", "set", "arp", replied, "known")
	_, forgotten := f.cloud.ns.Run(ctx, "ip", "neighbor", "flush", "dev", vSwitch,
		"nud", "reachable", "nud", "stale", "nud", "delay", "nud", "probe", "nud", "failed")
	return errors.Join(emptied, forgotten)
}

// Neighbor returns the hardware address of an address in the neighbor table of the vSwitch's
// gateway, or nothing.
func (f *Lab) Neighbor(ctx context.Context, addr netip.Addr) (string, error) {
	out, err := f.cloud.ns.Run(ctx, "ip", "neighbor", "show", addr.String(), "dev", vSwitch)
	_, mac, _ := strings.Cut(out, "lladdr ")
	if words := strings.Fields(mac); err == nil && len(words) > 0 {
		return words[0], nil
	}
	return "", err
}

var packets = regexp.MustCompile(`packets (\d+) `)

// ARPTaken counts the ARP replies that the vSwitch's gateway has accepted since SetGateway, and the
// requests for its own address.
func (f *Lab) ARPTaken(ctx context.Context) (int, error) {
	out, err := f.cloud.ns.Run(ctx, "nft", "list", "counter", "arp", replied, "answers")
	if err != nil {
		return 0, err
	}
	found := packets.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no counter in %s", out)
	}
	return strconv.Atoi(found[1])
}
