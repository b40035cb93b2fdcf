//go:build linux

package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Frame is a claim by a host on the segment of bare metal that it has an address: an ARP packet
// with the address as its sender, or a neighbor advertisement of the address.
type Frame struct {
	At time.Time
	// By is the machine or neighbor from whose port the frame came.
	By string
	// Hardware is the hardware address that the frame announces.
	Hardware string
	Address  netip.Addr
	// ToAll means that the frame was sent to all hosts, with or without a request.
	ToAll bool
}

func (f Frame) String() string {
	to := "one"
	if f.ToAll {
		to = "all"
	}
	return fmt.Sprintf("%s %s tells %s that %s is at %s", f.At.Format("15:04:05.000"), f.By, to, f.Address, f.Hardware)
}

// Frames are the claims since WatchSegment.
type Frames struct {
	socket *os.File
	ended  sync.WaitGroup
	names  func(index int) string

	mu   sync.Mutex
	seen []Frame
}

// WatchSegment records all claims from the ports of the segment's switch, until Close.
func (f *Lab) WatchSegment() (*Frames, error) {
	var fd int
	var failed error
	err := f.internet.ns.Do(func() {
		every := int(binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff}))
		fd, failed = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			every)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("watch the segment: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch the segment: %w", err)
	}
	w := &Frames{socket: os.NewFile(uintptr(fd), "segment"), names: f.behind()}
	w.ended.Go(w.read)
	return w, nil
}

// behind returns a function that names the host behind a port of the switch, by its index.
func (f *Lab) behind() func(index int) string {
	known := map[int]string{}
	return func(index int) string {
		if name, ok := known[index]; ok {
			return name
		}
		var port *net.Interface
		if err := f.internet.ns.Do(func() { port, _ = net.InterfaceByIndex(index) }); err != nil ||
			port == nil {
			return ""
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, m := range f.machines {
			if m.port() == port.Name {
				known[index] = m.Name
			}
		}
		for _, n := range f.neighbors {
			if n.port == port.Name {
				known[index] = n.Name
			}
		}
		return known[index]
	}
}

// Close ends the recording.
func (w *Frames) Close() {
	_ = w.socket.Close()
	w.ended.Wait()
}

// Claims returns the claims of an address since a time, in order.
func (w *Frames) Claims(addr netip.Addr, since time.Time) []Frame {
	w.mu.Lock()
	defer w.mu.Unlock()
	var claims []Frame
	for _, f := range w.seen {
		if f.Address == addr && !f.At.Before(since) {
			claims = append(claims, f)
		}
	}
	return claims
}

// Claimants returns the hosts that claimed an address since a time, sorted.
func (w *Frames) Claimants(addr netip.Addr, since time.Time) []string {
	var names []string
	for _, f := range w.Claims(addr, since) {
		names = append(names, f.By)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (w *Frames) read() {
	raw, err := w.socket.SyscallConn()
	if err != nil {
		return
	}
	frame := make([]byte, 2048)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), frame, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if failed != nil || !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		claim, is := parseClaim(frame[:n])
		if !is {
			continue
		}
		// A frame that the bridge itself receives appears once more, with the bridge's index.
		if claim.By = w.names(link.Ifindex); claim.By == "" {
			continue
		}
		claim.At = time.Now()
		w.mu.Lock()
		w.seen = append(w.seen, claim)
		w.mu.Unlock()
	}
}

// parseClaim parses an Ethernet frame; RFC 826, RFC 4861.
func parseClaim(frame []byte) (Frame, bool) {
	const ethernet, ipv6 = 14, 40
	if len(frame) < ethernet {
		return Frame{}, false
	}
	f := Frame{ToAll: frame[0]&1 == 1} // a multicast or broadcast address
	kind, body := binary.BigEndian.Uint16(frame[12:]), frame[ethernet:]
	switch {
	case kind == unix.ETH_P_ARP && len(body) >= 28:
		f.Hardware = net.HardwareAddr(body[8:14]).String()
		f.Address = netip.AddrFrom4([4]byte(body[14:18]))
		return f, f.Address != netip.IPv4Unspecified() // a probe claims nothing
	case kind == unix.ETH_P_IPV6 && len(body) >= ipv6+24 && body[6] == unix.IPPROTO_ICMPV6 &&
		body[ipv6] == 136:
		f.Address = netip.AddrFrom16([16]byte(body[ipv6+8 : ipv6+24]))
		if option := body[ipv6+24:]; len(option) >= 8 &&
			option[0] == 2 { // the target's link-layer address
			f.Hardware = net.HardwareAddr(option[2:8]).String()
		}
		return f, true
	}
	return Frame{}, false
}

// Hardware returns the hardware address of a machine's interface on the segment.
func (m *Machine) Hardware() (string, error) {
	var port *net.Interface
	var failed error
	err := m.Namespace.Do(func() { port, failed = net.InterfaceByName(uplink) })
	if err := errors.Join(err, failed); err != nil {
		return "", fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return port.HardwareAddr.String(), nil
}
