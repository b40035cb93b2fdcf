//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// eth0 is the public interface of a server of a CloudLab.
const eth0 = "eth0"

// cloudServer is a server of a CloudLab.
type cloudServer struct {
	id      int64
	ns      *netns.Namespace // nil: it is off
	public  Public           // the addresses of its public cable
	private map[int64]cable  // by network
	// ran: userData was started once
	userData *process.Process
	ran      bool
}

// cable connects a server to a network.
type cable struct {
	name  string // the interface's name
	addr  netip.Addr
	whole netip.Prefix // the network's range
}

func (s *cloudServer) port() string { return fmt.Sprintf("s%d", s.id) }

// follow makes packets follow the state of the cloud. Err returns its errors.
func (l *CloudLab) follow(ctx context.Context, now hcloudsim.DataPlane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.internet.follow(ctx, now.FloatingIPs)
	for _, plane := range now.Networks {
		if err := l.followNetwork(ctx, plane); err != nil {
			l.fail(err)
		}
	}
	for id, s := range l.servers {
		if _, stays := serverOf(now, id); !stays {
			l.fail(l.cut(ctx, s))
			delete(l.servers, id)
		}
	}
	for _, plane := range now.Servers {
		if err := l.followServer(ctx, plane, now.Networks); err != nil {
			l.fail(fmt.Errorf("server %d: %w", plane.ID, err))
		}
	}
	l.balancers.follow(ctx, now)
	for id, n := range l.networks {
		if !hasNetwork(now, id) {
			n.close()
			delete(l.networks, id)
		}
	}
}

func (l *CloudLab) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func serverOf(now hcloudsim.DataPlane, id int64) (hcloudsim.PlaneServer, bool) {
	for _, s := range now.Servers {
		if s.ID == id {
			return s, true
		}
	}
	return hcloudsim.PlaneServer{}, false
}

func hasNetwork(now hcloudsim.DataPlane, id int64) bool {
	for _, n := range now.Networks {
		if n.ID == id {
			return true
		}
	}
	return false
}

func (l *CloudLab) followNetwork(ctx context.Context, plane hcloudsim.PlaneNetwork) (err error) {
	n := l.networks[plane.ID]
	if n == nil {
		if n, err = newCloudNetwork(ctx, plane, l.behaves); err != nil {
			return err
		}
		l.networks[plane.ID] = n
	}
	n.follow(ctx, plane)
	return nil
}

// followServer gives a server its power and cables, and runs its user data.
func (l *CloudLab) followServer(
	ctx context.Context, plane hcloudsim.PlaneServer, networks []hcloudsim.PlaneNetwork,
) (err error) {
	s := l.servers[plane.ID]
	if s == nil {
		s = &cloudServer{id: plane.ID}
		l.servers[plane.ID] = s
	}
	if !plane.Running {
		return l.cut(ctx, s)
	}
	if s.ns == nil {
		if s.ns, err = openHost(); err != nil {
			return err
		}
		s.private = map[int64]cable{}
	}
	if err := l.plugPublic(ctx, s, publicOf(plane)); err != nil {
		return err
	}
	if err := l.plugPrivate(ctx, s, networks); err != nil {
		return err
	}
	return l.runUserData(s)
}

// openHost creates the namespace of a host that can be powered off.
func openHost() (*netns.Namespace, error) {
	ns, err := netns.Open()
	if err != nil {
		return nil, err
	}
	// A half-closed connection of a killed program keeps the namespace until its last FIN is
	// acknowledged or abandoned: with this setting within a second or two.
	if err := ns.Sysctl("net/ipv4/tcp_orphan_retries", "2"); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

func publicOf(plane hcloudsim.PlaneServer) Public {
	p := Public{IPv4: plane.IPv4, IPv6Prefix: plane.IPv6}
	if plane.IPv6.IsValid() {
		p.IPv6 = plane.IPv6.Addr().Next()
	}
	return p
}

// plugPublic connects a server to the internet, if it has public addresses.
func (l *CloudLab) plugPublic(ctx context.Context, s *cloudServer, wanted Public) error {
	if s.public == wanted {
		return nil
	}
	if s.public != (Public{}) {
		if err := l.internet.unplug(ctx, s.port()); err != nil {
			return err
		}
		s.public = Public{}
	}
	if wanted == (Public{}) {
		return nil
	}
	s.public = wanted
	if err := l.internet.plug(ctx, s.port(), s.ns, eth0, wanted); err != nil {
		return err
	}
	return l.internet.serve(ctx, s.id, s.port())
}

// plugPrivate connects a server to its networks.
func (l *CloudLab) plugPrivate(
	ctx context.Context, s *cloudServer, networks []hcloudsim.PlaneNetwork,
) error {
	wanted := map[int64]cable{}
	for _, n := range networks {
		for _, m := range n.Members {
			if m.Kind == "server" && m.ID == s.id {
				wanted[n.ID] = cable{addr: m.IP, whole: n.IPRange}
			}
		}
	}
	member := Member{"server", s.id}
	for id, c := range s.private {
		if w := wanted[id]; w.addr == c.addr && w.whole == c.whole {
			continue
		}
		delete(s.private, id)
		if err := l.networks[id].unplug(ctx, member); err != nil {
			return err
		}
	}
	for _, n := range networks {
		c, is := wanted[n.ID]
		if _, has := s.private[n.ID]; !is || has {
			continue
		}
		c.name = s.freeInterface()
		s.private[n.ID] = c
		if err := l.networks[n.ID].plug(ctx, member, s.ns, c.name, c.addr, c.whole); err != nil {
			return err
		}
	}
	return nil
}

// freeInterface returns the name of the next private interface.
func (s *cloudServer) freeInterface() string {
	taken := map[string]bool{}
	for _, c := range s.private {
		taken[c.name] = true
	}
	for i := 7; ; i++ {
		if name := fmt.Sprintf("enp%ds0", i); !taken[name] {
			return name
		}
	}
}

// cut powers a server off: its cables are removed before its programs can react.
func (l *CloudLab) cut(ctx context.Context, s *cloudServer) (err error) {
	if s.ns == nil {
		return nil
	}
	if s.public != (Public{}) {
		err = l.internet.unplug(ctx, s.port())
	}
	for id := range s.private {
		if n := l.networks[id]; n != nil {
			err = errors.Join(err, n.unplug(ctx, Member{"server", s.id}))
		}
	}
	s.halt()
	s.ns, s.public, s.private = nil, Public{}, nil
	return err
}

// halt ends the programs of a server.
func (s *cloudServer) halt() {
	if s.userData != nil {
		s.userData.Kill()
		s.userData = nil
	}
	if s.ns != nil {
		s.ns.Close()
	}
}

// Server returns the namespace of a server of the cloud; nil if there is none, or it is off.
func (l *CloudLab) Server(id int64) *netns.Namespace {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.servers[id]; s != nil {
		return s.ns
	}
	return nil
}
