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

// Gateway is what the vSwitch's gateway does where the provider documents nothing. The
// zero value is what the documentation of Underlay assumes.
type Gateway struct {
	// RefuseProxied takes no answer to ARP that one host gives for another, as servers
	// give them for their pods.
	RefuseProxied bool
	// AnySource forwards what comes from the vSwitch whatever its source is. Otherwise
	// what has no source in the subnet is dropped, as the network's own gateway drops.
	AnySource bool
	// Neighbors is how many hosts it knows at most; 0: any number. Answers of more are
	// dropped until it forgets. A host that asks for the gateway itself is always known.
	//
	// The kernel's own limits (gc_thresh1 to 3) are of no use here: no namespace has
	// them, they are about the neighbors of the whole machine.
	Neighbors int
	// Forgets is how often it forgets every host, also those that it has just sent
	// something to; 0: never, so that entries age as the kernel ages them, which asks
	// before it forgets.
	Forgets time.Duration
}

// roomy is the size of a table that never is full.
const roomy = 1 << 16

// replied is the nftables table by which the gateway takes answers to ARP or drops them.
const replied = "gateway"

// vSwitchPorts are the router's ports at vSwitches.
const vSwitchPorts = vSwitch + "*"

// script replaces the table, and with it forgets who is known.
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
	fmt.Fprintf(&out, "\t\tupdate @known { arp saddr ip } counter name answers accept\n") // no match where it is full
	fmt.Fprintf(&out, "\t\tarp operation reply drop\n\t}\n}\n")
	return out.String()
}

// aging forgets hosts until it is stopped.
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

// SetGateway has the vSwitch's gateway do exactly this from now on. It knows no host.
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

// ForgetNeighbors has the vSwitch's gateway look for every host anew. What waits for an
// answer goes on waiting.
func (f *Lab) ForgetNeighbors(ctx context.Context) error {
	_, emptied := f.cloud.ns.Run(ctx, "nft", "flush", "set", "arp", replied, "known")
	_, forgotten := f.cloud.ns.Run(ctx, "ip", "neighbor", "flush", "dev", vSwitch,
		"nud", "reachable", "nud", "stale", "nud", "delay", "nud", "probe", "nud", "failed")
	return errors.Join(emptied, forgotten)
}

// Neighbor returns the hardware address by which the vSwitch's gateway knows an
// address, or nothing.
func (f *Lab) Neighbor(ctx context.Context, addr netip.Addr) (string, error) {
	out, err := f.cloud.ns.Run(ctx, "ip", "neighbor", "show", addr.String(), "dev", vSwitch)
	_, mac, _ := strings.Cut(out, "lladdr ")
	if words := strings.Fields(mac); err == nil && len(words) > 0 {
		return words[0], nil
	}
	return "", err
}

var packets = regexp.MustCompile(`packets (\d+) `)

// ARPTaken counts the answers to ARP that the vSwitch's gateway has taken since
// SetGateway, and the questions for itself.
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
