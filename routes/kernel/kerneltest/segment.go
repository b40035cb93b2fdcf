//go:build linux

package kerneltest

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Segment is a cable between this namespace and a machine at its other end.
type Segment struct {
	// Name and Index are those of the interface on this side.
	Name  string
	Index int

	t      testing.TB
	remote *netlink.Handle
}

// NewSegment lays a cable. Addresses of this side are given with the lengths of
// their prefixes; the machine at the other end has none yet.
func NewSegment(t testing.TB, name string, addrs ...string) *Segment {
	t.Helper()
	Need(t)
	cmd := again(peer, nil)
	hold, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Wait()
	})
	remote, err := netns.GetFromPid(cmd.Process.Pid)
	must(t, err)
	defer remote.Close()

	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{
		LinkAttrs: attrs, PeerName: name + "-far", PeerNamespace: netlink.NsPid(cmd.Process.Pid),
	}
	must(t, netlink.LinkAdd(pair))
	s := &Segment{Name: name, t: t}
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	link, err := netlink.LinkByName(name)
	must(t, err)
	s.Index = link.Attrs().Index
	for _, a := range addrs {
		s.Address(a)
	}
	s.Up()
	s.remote, err = netlink.NewHandleAt(remote, unix.NETLINK_ROUTE)
	must(t, err)
	t.Cleanup(s.remote.Close)
	far, err := s.remote.LinkByName(name + "-far")
	must(t, err)
	must(t, s.remote.LinkSetUp(far))
	return s
}

// Up switches this side on.
func (s *Segment) Up() { s.t.Helper(); must(s.t, netlink.LinkSetUp(s.link())) }

// Down switches this side off.
func (s *Segment) Down() { s.t.Helper(); must(s.t, netlink.LinkSetDown(s.link())) }

// Address gives this side an address; an IPv6 one is usable at once.
func (s *Segment) Address(addr string) {
	s.t.Helper()
	must(s.t, netlink.AddrAdd(s.link(), address(s.t, addr)))
}

// Withdraw takes an address from this side.
func (s *Segment) Withdraw(addr string) {
	s.t.Helper()
	must(s.t, netlink.AddrDel(s.link(), address(s.t, addr)))
}

// Far gives the other end an address, so that it answers there.
func (s *Segment) Far(addr string) {
	s.t.Helper()
	far, err := s.remote.LinkByName(s.Name + "-far")
	must(s.t, err)
	must(s.t, s.remote.AddrAdd(far, address(s.t, addr)))
}

func (s *Segment) link() netlink.Link {
	s.t.Helper()
	link, err := netlink.LinkByName(s.Name)
	must(s.t, err)
	return link
}

func address(t testing.TB, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	must(t, err)
	if netip.MustParsePrefix(text).Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // no other host is on the cable
	}
	return a
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
