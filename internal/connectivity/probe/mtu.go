//go:build linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

const (
	// tries is how often a size is sent, sizeWithin the timeout of each reply.
	tries      = 3
	sizeWithin = 300 * time.Millisecond
	// headers4 and headers6 are the sizes of the IP and UDP headers without options, in bytes.
	headers4, headers6 = 20 + 8, 40 + 8
	// least4 and least6 are the sizes in bytes that every link must carry: RFC 791, RFC 8200.
	least4, least6 = 576, 1280
)

// tryMTU finds the largest packet that arrives. It fails if the smallest is lost.
func tryMTU(ctx context.Context, r *connectivity.Result) error {
	conn, err := dial(ctx, "udp", r)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := dontFragment(conn, r.At.Addr()); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	if r.Interface, err = interfaceMTU(conn); err != nil {
		return err
	}
	headers, least := headers4, least4
	if r.Family() == 6 {
		headers, least = headers6, least6
	}
	carries := func(size int) error { return carried(conn, size-headers) }
	if err := carries(least); err != nil {
		r.Interface = 0 // the MTU of the path is unknown
		return err
	}
	r.Carried = largest(least, r.Interface, func(size int) bool { return carries(size) == nil })
	return nil
}

// largest returns the greatest size up to limit that fits, by bisection after limit itself.
func largest(ok, limit int, fits func(int) bool) int {
	if limit <= ok || fits(limit) {
		return limit
	}
	for limit-ok > 1 {
		if middle := (ok + limit) / 2; fits(middle) {
			ok = middle
		} else {
			limit = middle
		}
	}
	return ok
}

// carried returns nil if a payload of size bytes arrives.
func carried(conn net.Conn, size int) error {
	buffer := make([]byte, 512)
	payload := make([]byte, size)
	want := fmt.Sprint(size)
	var last error
	for range tries {
		if err := conn.SetDeadline(time.Now().Add(sizeWithin)); err != nil {
			return err
		}
		if _, last = conn.Write(payload); errors.Is(last, syscall.EMSGSIZE) {
			return last // the kernel has cached a smaller path MTU
		}
		for last == nil {
			var n int
			if n, last = conn.Read(buffer); last != nil {
				break
			}
			if _, got, _ := strings.Cut(string(buffer[:n]), " "); got == want {
				return nil
			} // otherwise a late reply to another size
		}
	}
	return last
}

func dontFragment(conn net.Conn, to netip.Addr) error {
	udp, is := conn.(*net.UDPConn)
	if !is {
		return fmt.Errorf("%T is no UDP socket", conn)
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	level, option := syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER
	if to.Is6() {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), level, option, syscall.IP_PMTUDISC_DO)
	})
	return errors.Join(err, set)
}

func interfaceMTU(conn net.Conn) (int, error) {
	own, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return 0, err
	}
	all, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return 0, err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == own.Addr().WithZone("") {
				return min(i.MTU, 1<<16-1), nil
			}
		}
	}
	return 0, fmt.Errorf("no interface has the address %s", own.Addr())
}
