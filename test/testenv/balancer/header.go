package balancer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// Version is a version of the PROXY protocol, as described in
// https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt.
type Version int

const (
	Version1 Version = 1 // a line of text
	Version2 Version = 2 // binary
)

// signature opens a header of version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

const (
	commandProxy = 0x21 // version 2, command PROXY
	tcpOverIPv4  = 0x11
	tcpOverIPv6  = 0x21

	lineMost = 107 // bytes of a header of version 1, with its end
)

// Header is the content of a PROXY protocol header: source and destination of the connection. Both
// addresses are of one family.
type Header struct{ Source, Destination netip.AddrPort }

// Append appends the header to out.
func (h Header) Append(out []byte, v Version) []byte {
	source, destination := h.Source.Addr(), h.Destination.Addr()
	if v == Version1 {
		family := "TCP6"
		if source.Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(out, "PROXY %s %s %s %d %d\r\n", family, source, destination, h.Source.Port(), h.Destination.Port())
	}
	family := byte(tcpOverIPv6)
	if source.Is4() {
		family = tcpOverIPv4
	}
	addresses := append(source.AsSlice(), destination.AsSlice()...)
	addresses = binary.BigEndian.AppendUint16(addresses, h.Source.Port())
	addresses = binary.BigEndian.AppendUint16(addresses, h.Destination.Port())
	out = append(append(out, signature...), commandProxy, family)
	out = binary.BigEndian.AppendUint16(out, uint16(len(addresses)))
	return append(out, addresses...)
}

// ReadHeader reads a header of either version, and nothing after it.
func ReadHeader(r *bufio.Reader) (Header, error) {
	start, err := r.Peek(len(signature))
	if err != nil {
		return Header{}, fmt.Errorf("reading a PROXY header: %w", err)
	}
	if string(start) == signature {
		return readBinary(r)
	}
	return readLine(r)
}

func readBinary(r io.Reader) (Header, error) {
	fixed := make([]byte, len(signature)+4)
	if _, err := io.ReadFull(r, fixed); err != nil {
		return Header{}, fmt.Errorf("reading a PROXY header: %w", err)
	}
	kind, length := fixed[len(signature):], binary.BigEndian.Uint16(fixed[len(signature)+2:])
	rest := make([]byte, length)
	if _, err := io.ReadFull(r, rest); err != nil {
		return Header{}, fmt.Errorf("reading the addresses of a PROXY header: %w", err)
	}
	size := map[byte]int{tcpOverIPv4: 4, tcpOverIPv6: 16}[kind[1]]
	if kind[0] != commandProxy || size == 0 || len(rest) < 2*size+4 {
		return Header{}, fmt.Errorf("PROXY header of kind %#x with %d bytes: want TCP over IPv4 or IPv6", kind[:2], len(rest))
	}
	source, _ := netip.AddrFromSlice(rest[:size])
	destination, _ := netip.AddrFromSlice(rest[size : 2*size])
	ports := rest[2*size:]
	return Header{
		netip.AddrPortFrom(source, binary.BigEndian.Uint16(ports)),
		netip.AddrPortFrom(destination, binary.BigEndian.Uint16(ports[2:])),
	}, nil
}

func readLine(r *bufio.Reader) (Header, error) {
	var line []byte
	for len(line) < lineMost && !strings.HasSuffix(string(line), "\r\n") {
		c, err := r.ReadByte()
		if err != nil {
			return Header{}, fmt.Errorf("reading a PROXY header: %w", err)
		}
		line = append(line, c)
	}
	var family, source, destination string
	var from, to uint16
	if _, err := fmt.Sscanf(string(line), "PROXY %s %s %s %d %d\r\n", &family, &source, &destination, &from, &to); err != nil {
		return Header{}, fmt.Errorf("PROXY header %q: %w", line, err)
	}
	a, errA := netip.ParseAddr(source)
	b, errB := netip.ParseAddr(destination)
	return Header{netip.AddrPortFrom(a, from), netip.AddrPortFrom(b, to)}, errors.Join(errA, errB)
}
