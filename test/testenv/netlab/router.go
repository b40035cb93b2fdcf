//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// hop is the next hop of a route: a neighbor behind a port or, without via, the host on the port
// that has the destination itself.
type hop struct {
	port string
	via  netip.Addr
	// mtu is the largest packet that is forwarded there, in bytes; 0: the port's MTU.
	mtu int
}

// command is the line for "ip -batch" that adds the hop as a route.
func (h hop) command(dst netip.Prefix) string {
	line := fmt.Sprintf("route replace %s dev %s", dst, h.port)
	if h.via.IsValid() {
		line = fmt.Sprintf("route replace %s via %s dev %s onlink", dst, h.via, h.port)
	}
	if h.mtu != 0 {
		line += fmt.Sprintf(" mtu lock %d", h.mtu)
	}
	return line + "\n"
}

// layout is the whole state of a router.
type layout struct {
	routes map[netip.Prefix]hop
	// sources are the addresses accepted as sources behind each port. Packets with other sources
	// are dropped, as are those from ports that are missing here.
	sources map[string][]netip.Prefix
	// largest are the largest packets accepted from a port, in bytes; a port that is missing here
	// has no limit.
	largest map[string]int
}

// router is a namespace that forwards.
type router struct {
	ns *netns.Namespace

	mu   sync.Mutex
	have map[netip.Prefix]hop
}

func newRouter() (*router, error) {
	ns, err := netns.Open()
	if err != nil {
		return nil, err
	}
	err = errors.Join(ns.Sysctl("net/ipv4/ip_forward", "1"), ns.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	for _, key := range []string{"all", "default"} {
		err = errors.Join(err, ns.Sysctl("net/ipv4/conf/"+key+"/send_redirects", "0"), ns.Sysctl("net/ipv4/conf/"+key+"/rp_filter", "0"))
	}
	if err != nil {
		ns.Close()
		return nil, err
	}
	return &router{ns: ns, have: map[netip.Prefix]hop{}}, nil
}

// table is the name of the routers' nftables table.
const table = "sources"

// set applies exactly this state. All sources change at the same moment: before new routes are
// added, after old ones are removed.
func (r *router) set(ctx context.Context, want layout) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone, put strings.Builder
	for dst := range r.have {
		if _, stays := want.routes[dst]; !stays {
			fmt.Fprintf(&gone, "route del %s\n", dst)
		}
	}
	for dst, h := range want.routes {
		if r.have[dst] == h {
			continue
		}
		put.WriteString(h.command(dst))
	}
	// The kernel has deleted the routes of deleted interfaces.
	_ = r.batch(ctx, gone.String(), "-force")
	if _, err := r.ns.Feed(ctx, filter(want), "nft", "-f", "-"); err != nil {
		return err
	}
	if err := r.batch(ctx, put.String()); err != nil {
		return err
	}
	r.have = maps.Clone(want.routes)
	return nil
}

func (r *router) batch(ctx context.Context, lines string, flags ...string) error {
	if lines == "" {
		return nil
	}
	_, err := r.ns.Feed(ctx, lines, "ip", append(flags, "-batch", "-")...)
	return err
}

// filter is the nft script that replaces the whole table in one transaction.
func filter(want layout) string {
	var out strings.Builder
	fmt.Fprintf(&out, "add table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n\tchain forward {\n", table)
	fmt.Fprintf(&out, "\t\ttype filter hook forward priority filter; policy drop;\n")
	for _, port := range slices.Sorted(maps.Keys(want.largest)) {
		fmt.Fprintf(&out, "\t\tiifname %q meta length > %d drop\n", port, want.largest[port])
	}
	for _, port := range slices.Sorted(maps.Keys(want.sources)) {
		for _, p := range want.sources[port] {
			family := "ip"
			if p.Addr().Is6() {
				family = "ip6"
			}
			fmt.Fprintf(&out, "\t\tiifname %q %s saddr %s accept\n", port, family, p)
		}
	}
	fmt.Fprintf(&out, "\t\tcounter drop\n\t}\n}\n")
	return out.String()
}
