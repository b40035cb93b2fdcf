package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
)

// Open opens a wire in the network namespace of the calling thread.
func Open(_ context.Context, link layer2.Link, family addresses.Family) (layer2.Wire, error) {
	program, protocol := arpFilter(), unix.ETH_P_ARP
	if family == addresses.IPv6 {
		program, protocol = neighborFilter(), unix.ETH_P_IPV6
	}
	filter, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	// A socket of one protocol does not receive frames that this host sends, and adds no cost for
	// other protocols.
	interfaceOf := &net.Interface{Index: link.Index, Name: link.Name, HardwareAddr: link.MAC}
	conn, err := packet.Listen(interfaceOf, packet.Raw, protocol, &packet.Config{Filter: filter})
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: give the program the capability NET_RAW", err)
		}
		return nil, err
	}
	w := &wire{conn: conn}
	if family == addresses.IPv6 {
		w.groups, err = openGroups(link.Index)
	}
	if err == nil {
		w.raw, err = conn.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// wire is a packet socket on one interface with its multicast groups.
type wire struct {
	conn *packet.Conn
	raw  interface {
		Write(func(fd uintptr) (done bool)) error
	}
	groups *groups // nil for IPv4
}

// Send implements layer2.Wire. It returns an error if the interface has no room for the frame.
func (w *wire) Send(frame []byte) error {
	var failed error
	err := w.raw.Write(func(fd uintptr) bool {
		failed = unix.Send(int(fd), frame, unix.MSG_DONTWAIT)
		return true
	})
	return errors.Join(err, failed)
}

// Receive implements layer2.Wire.
func (w *wire) Receive(buffer []byte) (int, error) {
	n, _, err := w.conn.ReadFrom(buffer)
	return n, err
}

// Join implements layer2.Wire.
func (w *wire) Join(held []netip.Addr) error {
	if w.groups == nil {
		return nil
	}
	return w.groups.set(held)
}

// Close implements layer2.Wire.
func (w *wire) Close() error {
	err := w.conn.Close()
	if w.groups != nil {
		err = errors.Join(err, w.groups.close())
	}
	return err
}
