//go:build linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// patience is the timeout of each side of a connection.
const patience = time.Second

// Serve listens at an address such as ":8080" until ctx is done. It replies with the name over
// TCP, and with the name and the number of received bytes over UDP.
func Serve(ctx context.Context, name, address string) error {
	var config net.ListenConfig
	tcp, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	udp, err := config.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return errors.Join(err, tcp.Close())
	}
	return serve(ctx, name, tcp, udp)
}

func serve(ctx context.Context, name string, tcp net.Listener, udp net.PacketConn) error {
	stop := context.AfterFunc(ctx, func() { _, _ = tcp.Close(), udp.Close() })
	defer stop()
	var both sync.WaitGroup
	var failed [2]error
	both.Go(func() { failed[0] = connections(name, tcp); _ = udp.Close() })
	both.Go(func() { failed[1] = datagrams(name, udp); _ = tcp.Close() })
	both.Wait()
	if ctx.Err() != nil {
		return nil // closed by ctx
	}
	return errors.Join(failed[:]...)
}

func connections(name string, l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = fmt.Fprintln(conn, name) // on an error, the client receives no name
		_ = conn.Close()
	}
}

func datagrams(name string, conn net.PacketConn) error {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		_, _ = conn.WriteTo(fmt.Appendf(nil, "%s %d", name, n), from)
	}
}
