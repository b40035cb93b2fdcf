//go:build linux

// Command program is an echo in a container:
//
//	echo serve PORT              replies with the host's name, which is the pod's, until SIGTERM
//	echo ask NETWORK HOST:PORT   requests one, over tcp or udp, and prints the reply
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/echo"
)

// askWithin limits one request, including the lookup of the name.
const askWithin = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 3 && args[0] == "ask":
		return exchange(ctx, args[1], args[2], out)
	}
	return fmt.Errorf("arguments %q: give serve PORT or ask NETWORK HOST:PORT", args)
}

func serve(ctx context.Context, port string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	tcp, err := listen.Listen(ctx, "tcp", ":"+port)
	if err != nil {
		return err
	}
	udp, err := listen.ListenPacket(ctx, "udp", ":"+port)
	if err != nil {
		return errors.Join(err, tcp.Close())
	}
	server := echo.Serve(name, tcp, udp)
	<-ctx.Done()
	server.Close()
	return nil
}

func exchange(ctx context.Context, network, address string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if network == "udp" {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("asking %s over %s: %w", address, network, err)
	}
	_, err = io.WriteString(out, line)
	return err
}
