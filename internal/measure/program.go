package measure

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programPort is the TCP port of the program on a server.
const programPort = "8080"

const (
	// booting limits the time until the program of a server replies.
	booting = 5 * time.Minute
	// calling limits the time of a call.
	calling = 30 * time.Second
)

//go:embed program.py
var script string

// userData returns the program with its key, as a script for cloud-init.
func userData(key string) string {
	return strings.Replace(script, `KEY = b""`, fmt.Sprintf("KEY = b%q", key), 1)
}

// program is the client of the program on a server. Requests are signed with a key that only this
// server has, and contain no secrets.
type program struct {
	server, key string
	at          netip.Addr
	http        *http.Client
}

func newProgram(
	server string, at netip.Addr, key string,
	dial func(context.Context, string, string) (net.Conn, error),
) *program {
	return &program{server: server, key: key, at: at, http: &http.Client{
		Timeout:   calling,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// call calls a function of the program. The random ID makes each request unique, because the
// program rejects replayed requests.
func (p *program) call(
	ctx context.Context, function string, arguments map[string]any, result any,
) error {
	arguments["id"] = rand.Text()
	body, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	url := "http://" + net.JoinHostPort(p.at.String(), programPort) + "/" + function
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(p.key))
	fmt.Fprintf(mac, "/%s\n%s", function, body)
	request.Header.Set("Authorization", hex.EncodeToString(mac.Sum(nil)))
	response, err := p.http.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %w", p.server, err)
	}
	defer response.Body.Close()
	reply := struct {
		Error  string `json:"error"`
		Result any    `json:"result"`
	}{Result: result}
	err = json.NewDecoder(response.Body).Decode(&reply)
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", p.server, function, err)
	}
	return nil
}

// clock returns the local time of the program's clock 0, accurate to half a request's duration.
func (p *program) clock(ctx context.Context) (time.Time, error) {
	var now int64
	began := time.Now()
	err := p.call(ctx, "clock", map[string]any{}, &now)
	return began.Add(time.Since(began)/2 - time.Duration(now)), err
}

func (p *program) ip(ctx context.Context, arguments ...string) (text string, err error) {
	err = p.call(ctx, "ip", map[string]any{"arguments": arguments}, &text)
	return text, err
}

type device struct {
	Name      string `json:"ifname"`
	MTU       int    `json:"mtu"`
	Addresses []struct {
		Local netip.Addr `json:"local"`
	} `json:"addr_info"`
}

func (p *program) device(ctx context.Context, address netip.Addr) (device, error) {
	text, err := p.ip(ctx, "-json", "address", "show")
	var all []device
	if err == nil {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		return device{}, err
	}
	for _, d := range all {
		for _, a := range d.Addresses {
			if a.Local == address {
				return d, nil
			}
		}
	}
	return device{}, fmt.Errorf("%s: no interface has the address %s", p.server, address)
}

func (p *program) setMTU(ctx context.Context, device string, bytes int) error {
	_, err := p.ip(ctx, "link", "set", "dev", device, "mtu", strconv.Itoa(bytes))
	return err
}

type stream struct {
	from  netip.Addr // may be a foreign address
	to    netip.AddrPort
	size  int // of each IP packet, in bytes; never fragmented
	count int
	every time.Duration
}

// send sends a stream. With wait it returns after the last packet, otherwise at once.
func (p *program) send(ctx context.Context, s stream, wait bool) error {
	return p.call(ctx, "send", map[string]any{
		"from": s.from, "to": s.to.Addr(), "port": s.to.Port(), "size": s.size, "count": s.count,
		"every": s.every.Seconds(), "wait": wait,
	}, nil)
}

// receive starts receiving packets at a UDP port and discards earlier packets.
func (p *program) receive(ctx context.Context, port uint16) error {
	return p.call(ctx, "receive", map[string]any{"port": port}, nil)
}

type packet struct {
	From netip.Addr    `json:"from"`
	Sent time.Duration `json:"sent"` // by the sender's clock
	Size int           `json:"size"`
}

// packets returns the packets received on a port from an address, in order, at most 1000.
func (p *program) packets(ctx context.Context, port uint16, from netip.Addr) ([]packet, error) {
	var all []packet
	err := p.call(ctx, "packets", map[string]any{"port": port}, &all)
	return slices.DeleteFunc(all, func(p packet) bool { return p.From.Unmap() != from }), err
}

// listen starts accepting connections at a TCP port and discards earlier connections. replies
// sets whether HTTP requests get a reply.
func (p *program) listen(ctx context.Context, port uint16, replies bool) error {
	return p.call(ctx, "listen", map[string]any{"port": port, "replies": replies}, nil)
}

type connection struct {
	From  netip.Addr `json:"from"`
	First string     `json:"first"` // first bytes received
}

// requests returns the connections to a port that sent an HTTP request.
func (p *program) requests(ctx context.Context, port uint16) ([]connection, error) {
	var all []connection
	err := p.call(ctx, "connections", map[string]any{"port": port}, &all)
	return slices.DeleteFunc(all, func(c connection) bool {
		return !strings.Contains(c.First, "GET ")
	}), err
}

// proxy returns the version of the connection's PROXY protocol header; 0 without a header.
func (c connection) proxy() int {
	switch {
	case strings.HasPrefix(c.First, "PROXY "):
		return 1
	case strings.HasPrefix(c.First, "\r\n\r\n\x00\r\nQUIT\n"):
		return 2
	}
	return 0
}
