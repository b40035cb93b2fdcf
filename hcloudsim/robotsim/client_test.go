package robotsim_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	hrobot "github.com/syself/hrobot-go"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

const user, password = "robot", "secret"

// newSim returns a simulator with the credentials of the clients below.
func newSim(options robotsim.Options) *robotsim.Simulator {
	options.User, options.Password = user, password
	return robotsim.New(options)
}

// client returns hrobot-go as programs use it, but in process.
func client(sim *robotsim.Simulator) hrobot.RobotClient {
	c := hrobot.NewBasicAuthClientWithCustomHttpClient(user, password, &http.Client{
		Transport: sim.Transport(),
	})
	c.SetBaseURL("http://robot.test")
	return c
}

// response is a raw response of the simulator.
type response struct {
	status int
	header http.Header
	body   string
	parsed any
}

// request returns a request with valid credentials.
func request(t *testing.T, method, path, form string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://robot.test"+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, password)
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

// send sends a request without a client library. The form's values need no encoding.
func send(t *testing.T, sim *robotsim.Simulator, method, path, form string) response {
	t.Helper()
	values := url.Values{}
	for pair := range strings.SplitSeq(form, "&") {
		if key, value, found := strings.Cut(pair, "="); found {
			values.Add(key, value)
		}
	}
	return exchange(t, sim, request(t, method, path, values.Encode()))
}

func exchange(t *testing.T, sim *robotsim.Simulator, r *http.Request) response {
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
	out := response{status: got.StatusCode, header: got.Header, body: strings.TrimSpace(string(text))}
	_ = json.Unmarshal(text, &out.parsed) // an empty body has none
	return out
}

// at returns a value of the response by its path, such as error.code or 0.server.
func (r response) at(path string) any {
	value := r.parsed
	for key := range strings.SplitSeq(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[key]
		case []any:
			if int(key[0]-'0') >= len(inner) {
				return nil
			}
			value = inner[key[0]-'0']
		default:
			return nil
		}
	}
	return value
}

func (r response) code() string {
	code, _ := r.at("error.code").(string)
	return code
}

func (r response) want(t *testing.T, status int, code string) {
	t.Helper()
	if r.status != status || r.code() != code {
		t.Errorf("answer is %d %s, want %d %q", r.status, r.body, status, code)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// seeded is an account with the servers 321 and 421, a vSwitch 4321 with the first as its member,
// and failover addresses of both families that belong to it.
func seeded(t testing.TB, options robotsim.Options) *robotsim.Simulator {
	t.Helper()
	sim := newSim(options)
	for _, seed := range []robotsim.ServerSeed{
		{Number: 321, Name: "node-1", IPv4: netip.MustParseAddr("203.0.113.1"), IPv6: netip.MustParsePrefix("2001:db8:1::/64"), DC: "FSN1-DC14"},
		{Number: 421, Name: "node-2", IPv4: netip.MustParseAddr("203.0.113.2"), IPv6: netip.MustParsePrefix("2001:db8:2::/64"), DC: "NBG1-DC1"},
	} {
		_, err := sim.CreateServer(seed)
		noError(t, err)
	}
	_, err := sim.CreateVSwitch(robotsim.VSwitchSeed{ID: 4321, Name: "cluster", VLAN: 4001, Servers: []robotsim.MemberSeed{{Number: 321}}})
	noError(t, err)
	noError(t, sim.CreateFailover(robotsim.FailoverSeed{Net: netip.MustParsePrefix("203.0.113.100/32"), Server: 321}))
	noError(t, sim.CreateFailover(robotsim.FailoverSeed{Net: netip.MustParsePrefix("2001:db8:f::/64"), Server: 321}))
	return sim
}
