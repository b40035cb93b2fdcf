//go:build linux

// Package echo is what the pods of tests run: it tells whoever asks who it is and which address
// the question came from.
//
// Over TCP it writes a line and closes; over UDP each packet is answered by one that begins with
// that line and ends with the packet. A Repeater says whatever it is told over TCP, for as long as
// the other side likes.
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

// Server answers until it is closed.
type Server struct {
	name  string
	tcp   net.Listener
	udp   net.PacketConn
	ended sync.WaitGroup
}

// Answer is what a Server says.
type Answer struct {
	// Name is who answered.
	Name string
	// Source is where the question came from, as it was seen there.
	Source netip.AddrPort
}

// Serve answers under a name on both sockets, which are the Server's from then on. Over UDP a
// host with several addresses may answer from another one than it was asked at.
func Serve(name string, tcp net.Listener, udp net.PacketConn) *Server {
	s := &Server{name: name, tcp: tcp, udp: udp}
	s.ended.Go(s.serveTCP)
	s.ended.Go(s.serveUDP)
	return s
}

// Close ends it. It may be called more than once.
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
		// Few enough bytes to fit into the socket's buffer: this doesn't block.
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

// Parse reads the line of an answer.
func Parse(line string) (Answer, error) {
	name, source, _ := strings.Cut(strings.TrimSpace(line), " ")
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("an answer that no echo gives, %q: %w", line, err)
	}
	return Answer{name, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())}, nil
}

// Roomy lets a socket hold what comes while its process doesn't run: on a busy machine that would
// look as if the network lost it. It takes CAP_NET_ADMIN.
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
