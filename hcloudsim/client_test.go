package hcloudsim_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

const token = "test-token"

// newSim returns a simulator with the token of the clients below.
func newSim(options hcloudsim.Options) *hcloudsim.Simulator {
	options.Token = token
	return hcloudsim.New(options)
}

// client returns hcloud-go as programs use it, but in process and without its retries, so that each
// error is returned.
func client(sim *hcloudsim.Simulator, options ...hcloud.ClientOption) *hcloud.Client {
	return hcloud.NewClient(append([]hcloud.ClientOption{
		hcloud.WithToken(token),
		hcloud.WithEndpoint("http://sim.test/v1"),
		hcloud.WithHTTPClient(&http.Client{Transport: sim.Transport()}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0, BackoffFunc: hcloud.ConstantBackoff(0)}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(500 * time.Millisecond)}),
	}, options...)...)
}

// response is a raw response of the simulator.
type response struct {
	status int
	header http.Header
	body   string
	object map[string]any
}

// send sends a request without hcloud-go.
func send(t *testing.T, sim *hcloudsim.Simulator, method, path, body string) response {
	t.Helper()
	r, err := http.NewRequest(method, "http://sim.test"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return exchange(t, sim, r)
}

func exchange(t *testing.T, sim *hcloudsim.Simulator, r *http.Request) response {
	t.Helper()
	got, err := sim.Transport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := response{status: got.StatusCode, header: got.Header, body: string(text)}
	_ = json.Unmarshal(text, &out.object) // an empty body has no object
	return out
}

// code returns the code of an error response.
func (r response) code() string {
	e, _ := r.object["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// field returns the first field that an error response names.
func (r response) field() string {
	e, _ := r.object["error"].(map[string]any)
	details, _ := e["details"].(map[string]any)
	fields, _ := details["fields"].([]any)
	if len(fields) == 0 {
		return ""
	}
	name, _ := fields[0].(map[string]any)["name"].(string)
	return name
}

func (r response) want(t *testing.T, status int, code string) {
	t.Helper()
	if r.status != status || r.code() != code {
		t.Errorf("answer is %d %s, want %d %q", r.status, r.body, status, code)
	}
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// ipNet returns hcloud-go's type of a prefix.
func ipNet(text string) *net.IPNet {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return n
}

// seedNetwork creates 10.0.0.0/8 with the subnet 10.0.0.0/16.
func seedNetwork(t testing.TB, sim *hcloudsim.Simulator) *hcloud.Network {
	t.Helper()
	n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "cluster", IPRange: prefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: prefix("10.0.0.0/16")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &hcloud.Network{ID: n.ID}
}

func seedServer(t testing.TB, sim *hcloudsim.Simulator, seed hcloudsim.ServerSeed) *hcloud.Server {
	t.Helper()
	s, err := sim.CreateServer(seed)
	if err != nil {
		t.Fatal(err)
	}
	return &hcloud.Server{ID: s.ID}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code string) {
	t.Helper()
	if !hcloud.IsError(err, hcloud.ErrorCode(code)) {
		t.Errorf("error is %v, want code %s", err, code)
	}
}
