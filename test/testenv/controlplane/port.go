package controlplane

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// port is a reserved TCP port on one IPv4 address: a socket holds it without listening, and the API
// server listens beside it by --permit-port-sharing. So no other process can take the port before
// the API server has it, nor while it restarts.
type port struct {
	addr   netip.Addr
	number uint16
	socket int
}

func reservePort(addr netip.Addr) (*port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	unix.CloseOnExec(socket)
	p := &port{addr: addr, socket: socket}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	// Port 0: the kernel picks one that is not in use, shared or not.
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: p.addr.As4()}); err != nil {
		return err
	}
	bound, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	p.number = uint16(bound.(*unix.SockaddrInet4).Port)
	return nil
}

func (p *port) address() netip.AddrPort {
	return netip.AddrPortFrom(p.addr, p.number)
}

func (p *port) release() { _ = unix.Close(p.socket) }
