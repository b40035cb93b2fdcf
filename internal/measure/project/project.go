package project

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// Label marks what a run has made; its value is the run's name.
const Label = "underlay.dev/measure"

// namePrefix begins the names of what runs make: a label alone is soon copied to something else.
const namePrefix = "underlay-measure-"

// Options are what a Project needs.
type Options struct {
	// Token is the project's, with permission to read and write.
	Token secret.Text
	// Endpoint is the API's address including its version path; empty: the real one.
	Endpoint string
	// Transport is the way to the API; nil means that of requests.NewTransport.
	Transport http.RoundTripper
	// Run is the name of the run, see [NewRun].
	Run string
	// Plan is what may be made. Without one nothing can be: the run can still be swept.
	Plan Plan
	// Version goes into the User-Agent.
	Version string
	// Progress, if set, is told what is being waited for and removed, in a line without an end.
	Progress func(string)
}

// Plan is what a run may make, and what it may touch beside that.
type Plan struct {
	// Things are how many of each may be made altogether.
	measure.Things
	// ServerType and LoadBalancerType are the names of the only types that may be made.
	ServerType, LoadBalancerType string
	// Location is where servers may be made, whose prices it has; empty: anywhere.
	Location string
	// VSwitch is the ID of the only vSwitch that a network of the run may be coupled with; 0:
	// none.
	VSwitch int64
	// Dedicated are the addresses of the user's dedicated server, which load balancers of the run
	// may have as targets.
	Dedicated []netip.Prefix
}

// Project makes and removes the throw-away things of one run.
type Project struct {
	run      string
	plan     Plan
	progress func(string)
	guard    *guard
	client   *hcloud.Client
	timings  timings
	key      sshKey
}

// runName leaves room for the rest of a host's name, and is a label's value.
var runName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`)

// NewRun makes the name of a run: when it began, and something by chance.
func NewRun(now time.Time, random io.Reader) (string, error) {
	var chance [3]byte
	if _, err := io.ReadFull(random, chance[:]); err != nil {
		return "", fmt.Errorf("naming the run: %w", err)
	}
	return fmt.Sprintf("%s-%x", now.UTC().Format("20060102-1504"), chance), nil
}

// New prepares a Project. It sends nothing.
func New(o Options) (*Project, error) {
	base, err := parseEndpoint(cmp.Or(o.Endpoint, hcloud.Endpoint))
	if err != nil {
		return nil, err
	}
	if !runName.MatchString(o.Run) {
		return nil, fmt.Errorf("run %q is no name of a run: "+
			"it has at most 24 small letters, digits and hyphens, such as 20261124-0930-4f09a1", o.Run)
	}
	if err := checkToken(o.Token); err != nil {
		return nil, err
	}
	p := &Project{run: o.Run, plan: o.Plan, progress: o.Progress}
	if p.progress == nil {
		p.progress = func(string) {}
	}
	p.guard = newGuard(base, o)
	p.guard.say = p.progress
	p.client = hcloud.NewClient(
		hcloud.WithEndpoint(base.String()),
		hcloud.WithApplication("underlayctl-measure", o.Version),
		hcloud.WithHTTPClient(&http.Client{Transport: p.guard, CheckRedirect: noRedirect}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(pollMost)}),
	)
	return p, nil
}

// noRedirect has a redirect as the reply: followed, it would ask for what nobody has judged.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// parseEndpoint takes an API's address apart. Its error holds no password.
func parseEndpoint(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return nil, fmt.Errorf("the endpoint is no URL such as %s", hcloud.Endpoint)
	case base.User != nil || base.RawQuery != "" || base.Fragment != "" || base.RawPath != "":
		return nil, fmt.Errorf("the endpoint at %s must have a host and a path alone, such as %s",
			base.Host, hcloud.Endpoint)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	return base, nil
}

// checkToken refuses what can't be sent in a header. Its error doesn't hold the token.
func checkToken(t secret.Text) error {
	text := t.Reveal()
	if text == "" {
		return errors.New("the token is empty: " +
			"put in an API token of the project, with permission to read and write")
	}
	for _, b := range []byte(text) {
		if b <= ' ' || b > '~' {
			return errors.New("the token holds a space, a control character or one outside ASCII: " +
				"copy it again, alone and on one line")
		}
	}
	return nil
}

// Client speaks to the API with the run's rules around it, and tries nothing again.
func (p *Project) Client() *hcloud.Client { return p.client }

// Run is the run's name.
func (p *Project) Run() string { return p.run }

// Name is a name for something of this run. Without it nothing can be made.
func (p *Project) Name(what string) string { return namesOf(p.run) + what }

// Labels are those without which nothing can be made.
func (p *Project) Labels() map[string]string { return map[string]string{Label: p.run} }

// namesOf begins the names of what a run makes.
func namesOf(run string) string { return namePrefix + run + "-" }
