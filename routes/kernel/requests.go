//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

const (
	// atOnce is how many requests go into one datagram. The answers to all of them,
	// should every one fail, fit into the least receive buffer that Linux sets up.
	atOnce = 128
	// answerBuffer is what the kernel fills at most with a part of a dump.
	answerBuffer = 64 << 10
)

// requests is a socket for what the library has no way to ask for: many changes in
// one datagram, and a dump that is read in place. The kernel works off a datagram
// before sendto returns and goes on behind a request that fails, so answers are
// there to be read at once (netlink(7); net/netlink/af_netlink.c, netlink_rcv_skb).
type requests struct {
	mu     sync.Mutex
	fd     int
	seq    uint32
	out    []byte
	answer []byte
}

func openRequests() (*requests, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	limit := unix.NsecToTimeval(requestTimeout.Nanoseconds())
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		// An error comes without the request that it is about.
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &requests{fd: fd, answer: make([]byte, answerBuffer)}, nil
}

func (r *requests) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = unix.Close(r.fd)
}

// change asks for the same of at most atOnce entries, and sets the error of each
// that is refused. The kernel acknowledges the last one in any case, the others
// only if they fail.
func (r *requests) change(kind, flags uint16, entries []agent.Entry, failed []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.seq + 1
	r.out = r.out[:0]
	for i, e := range entries {
		f := unix.NLM_F_REQUEST | flags
		if i == len(entries)-1 {
			f |= unix.NLM_F_ACK
		}
		r.seq++
		r.out = appendRoute(r.out, e, kind, f, r.seq)
	}
	err := r.send()
	for complete := false; !complete && err == nil; {
		err = r.receive(func(m message) error {
			// Of an earlier datagram whose answers nobody waited for.
			if m.seq-first >= uint32(len(entries)) || m.kind != unix.NLMSG_ERROR {
				return nil
			}
			code, err := m.code()
			failed[m.seq-first] = code
			complete = complete || m.seq == r.seq
			return err
		})
	}
	if err == nil {
		return
	}
	for i := range failed { // perhaps done, perhaps not: the next look tells
		if failed[i] == nil {
			failed[i] = fmt.Errorf("the kernel did not answer: %w", err)
		}
	}
}

// dump asks for everything of a kind, of every family, and shows the messages of
// kind answer. The header is what such a message begins with, all of it zero.
func (r *requests) dump(kind, answer uint16, header int, show func([]byte)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	r.out = appendHeader(r.out[:0], kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, r.seq)
	r.out = endMessage(append(r.out, make([]byte, header)...), 0)
	if err := r.send(); err != nil {
		return err
	}
	interrupted := false
	for complete := false; !complete; {
		err := r.receive(func(m message) error {
			if m.seq != r.seq {
				return nil
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch m.kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				complete = true
				refused, err := m.code()
				return errors.Join(refused, err)
			case answer:
				show(m.data)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if interrupted {
		return netlink.ErrDumpInterrupted
	}
	return nil
}

func (r *requests) send() error {
	return unix.Sendto(r.fd, r.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// receive reads one datagram.
func (r *requests) receive(each func(message) error) error {
	for {
		n, _, err := unix.Recvfrom(r.fd, r.answer, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n > len(r.answer):
			return fmt.Errorf("an answer of %d bytes is longer than the buffer", n)
		}
		return eachMessage(r.answer[:n], each)
	}
}

// message is one of a datagram; data is valid until the next is read.
type message struct {
	kind, flags uint16
	seq         uint32
	data        []byte
}

var errShort = errors.New("a netlink message is cut off")

// eachMessage shows the messages of a datagram until one leads to an error.
func eachMessage(datagram []byte, each func(message) error) error {
	for len(datagram) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < unix.SizeofNlMsghdr || length > len(datagram) {
			return errShort
		}
		err := each(message{
			kind:  binary.NativeEndian.Uint16(datagram[4:]),
			flags: binary.NativeEndian.Uint16(datagram[6:]),
			seq:   binary.NativeEndian.Uint32(datagram[8:]),
			data:  datagram[unix.SizeofNlMsghdr:length],
		})
		if err != nil {
			return err
		}
		datagram = datagram[min(aligned(length), len(datagram)):]
	}
	return nil
}

// code reads what an NLMSG_ERROR or NLMSG_DONE says of the request; the second
// error is of the reading.
func (m message) code() (refused, err error) {
	switch {
	case len(m.data) < 4 && m.kind == unix.NLMSG_DONE:
		return nil, nil
	case len(m.data) < 4:
		return nil, errShort
	}
	if number := int32(binary.NativeEndian.Uint32(m.data)); number < 0 {
		return unix.Errno(-number), nil
	}
	return nil, nil
}

// aligned rounds up to the boundary that messages and attributes begin at.
func aligned(length int) int { return (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
