//go:build linux

// Package echo is the server in the pods of tests: its reply contains its own name and the source
// address of the request.
//
// Over TCP it writes a line and closes; over UDP it replies to each packet with that line followed
// by the packet. A Repeater echoes all data over TCP until the client closes.
package echo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Server replies until it is closed.
type Server struct {
	name  string
	tcp   net.Listener
	udp   net.PacketConn
	ended sync.WaitGroup
}

// Answer is the reply of a Server.
type Answer struct {
	// Name is the server's name.
	Name string
	// Source is the source of the request, as the server observed it.
	Source netip.AddrPort
}

// Serve replies under a name on both sockets, which the Server closes. Over UDP, a host with
// several addresses may reply from another one than the request's destination.
func Serve(name string, tcp net.Listener, udp net.PacketConn) *Server {
	s := &Server{name: name, tcp: tcp, udp: udp}
	s.ended.Go(s.serveTCP)
	s.ended.Go(s.serveUDP)
	return s
}

// Close stops the server. It may be called more than once.
func (s *Server) Close() {
	_ = s.tcp.Close()
	_ = s.udp.Close()
	s.ended.Wait()
}

func (s *Server) line(from net.Addr) string { return fmt.Sprintf("%s %s\n", s.name, from) }

func (s *Server) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		// The line fits into the socket's buffer, so this doesn't block.
		_, _ = conn.Write([]byte(s.line(conn.RemoteAddr())))
		_ = conn.Close()
	}
}

func (s *Server) serveUDP() {
	packet := make([]byte, 2048)
	for {
		n, from, err := s.udp.ReadFrom(packet)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			_, _ = s.udp.WriteTo(append([]byte(s.line(from)), packet[:n]...), from)
		}
	}
}

// Parse parses the line of a reply.
func Parse(line string) (Answer, error) {
	name, source, _ := strings.Cut(strings.TrimSpace(line), " ")
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("an answer that no echo gives, %q: %w", line, err)
	}
	return Answer{name, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}, nil
}

// Roomy enlarges a socket's receive buffer, so that it holds packets while its process doesn't run:
// on a busy machine they would seem lost in the network. It requires CAP_NET_ADMIN.
func Roomy(socket any) error {
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, failed)
}
