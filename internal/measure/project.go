package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// Label marks every created resource.
const Label = "underlay.dev/measure"

const (
	// lookEvery is the polling interval.
	lookEvery = 500 * time.Millisecond
	// replyWithin limits the time until the API replies.
	replyWithin = 30 * time.Second
	// sweepWithin limits the time until all resources are deleted.
	sweepWithin = 10 * time.Minute
)

// Options are the parameters of a Project.
type Options struct {
	Token    secret.Text // with read and write permission
	Endpoint string      // URL of the API, with its version path
	Version  string      // for the User-Agent header
	// Location of the created resources, and their types.
	Location, ServerType, Image, LoadBalancerType string
	// Transport connects to the API, Dial to servers; nil uses the host's network.
	Transport http.RoundTripper
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	// Progress receives progress messages; nil discards them.
	Progress func(string)
}

// Project is a cloud project in which resources are created and deleted.
type Project struct {
	options Options
	// client retries failed requests; once sends each request once.
	client, once *hcloud.Client
	took         map[string][]float64 // seconds by action command
}

// New returns a Project without sending a request.
func New(o Options) *Project {
	if o.Transport == nil {
		t := requests.NewTransport()
		t.ResponseHeaderTimeout = replyWithin
		o.Transport = t
	}
	client := func(retries int) *hcloud.Client {
		return hcloud.NewClient(
			hcloud.WithToken(o.Token.Reveal()), hcloud.WithEndpoint(o.Endpoint),
			hcloud.WithApplication("hcloud-sim-measure", o.Version),
			hcloud.WithHTTPClient(&http.Client{Transport: finishing{o.Transport}}),
			hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: retries}),
			// Poll an action after each tenth of its duration, so that short and long actions are
			// measured with the same precision.
			hcloud.WithPollOpts(hcloud.PollOpts{
				BackoffFunc: hcloud.ExponentialBackoffWithOpts(hcloud.ExponentialBackoffOpts{
					Base: 50 * time.Millisecond, Multiplier: 1.1, Cap: time.Second,
				}),
			}),
		)
	}
	return &Project{options: o, client: client(6), once: client(0), took: map[string][]float64{}}
}

func (p *Project) progress(what string) {
	if p.options.Progress != nil {
		p.options.Progress(what)
	}
}

// finishing completes a mutating request that was sent although its context has ended. Otherwise
// the created resource could appear after the sweep.
type finishing struct{ next http.RoundTripper }

func (f finishing) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	return f.next.RoundTrip(r)
}

// done returns a function that waits for the action that a client method has started.
func (p *Project) done(ctx context.Context) func(*hcloud.Action, *hcloud.Response, error) error {
	return func(action *hcloud.Action, _ *hcloud.Response, err error) error {
		if err != nil {
			return err
		}
		return p.wait(ctx, action)
	}
}

// wait waits for the end of actions and records their durations.
func (p *Project) wait(ctx context.Context, actions ...*hcloud.Action) error {
	began := time.Now()
	return p.client.Action.WaitForFunc(ctx, func(a *hcloud.Action) error {
		switch a.Status {
		case hcloud.ActionStatusError:
			return fmt.Errorf("action %s: %w", a.Command, a.Error())
		case hcloud.ActionStatusSuccess:
			p.took[a.Command] = append(p.took[a.Command], milliseconds(time.Since(began)))
		}
		return nil
	}, actions...)
}

// milliseconds returns seconds, rounded to the precision of a millisecond.
func milliseconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// until polls a condition; want describes it in errors.
func until(ctx context.Context, within time.Duration, want string, is func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, lookEvery, within, true,
		func(context.Context) (bool, error) { return is() })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s: not within %s", want, within)
	}
	return err
}

type thing struct {
	kind string // collection in the API
	ID   int64
	Name string
}

func (t thing) String() string { return fmt.Sprintf("%s/%d (%s)", t.kind, t.ID, t.Name) }

const sshKeys = "ssh_keys"

// things lists the first page of each kind that is created here or could interfere, filtered by a
// label selector, in an order in which they can be deleted.
func (p *Project) things(ctx context.Context, selector string) (all []thing, err error) {
	for _, kind := range []string{
		"load_balancers", "servers", "floating_ips", "primary_ips", "networks", sshKeys,
		"firewalls", "volumes",
	} {
		var reply map[string]json.RawMessage
		path := "/" + kind + "?per_page=50&label_selector=" + url.QueryEscape(selector)
		err := p.send(ctx, http.MethodGet, path, &reply)
		if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			continue // the simulator lacks some kinds
		}
		var found []thing
		if err == nil {
			err = json.Unmarshal(reply[kind], &found)
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind, err)
		}
		for _, t := range found {
			t.kind = kind
			all = append(all, t)
		}
	}
	return all, nil
}

func (p *Project) send(ctx context.Context, method, path string, into any) error {
	r, err := p.once.NewRequest(ctx, method, path, nil)
	if err != nil {
		return err
	}
	_, err = p.once.Do(r, into)
	return err
}

// Empty returns an error unless the project is empty. Foreign SSH keys don't affect any result.
func (p *Project) Empty(ctx context.Context) error {
	all, err := p.things(ctx, "")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(t thing) bool {
		return t.kind == sshKeys && !strings.HasPrefix(t.Name, namePrefix)
	})
	if len(all) > 0 {
		return fmt.Errorf("the project is not empty, and only an empty one is measured: create "+
			"another, or delete the resources of an earlier run with hcloud-sim measure clean: it has %v",
			all)
	}
	return nil
}

// Sweep deletes every resource with the label, and repeats until the list is empty, because some
// resources can be deleted only after others. The error names the remaining resources.
func (p *Project) Sweep(ctx context.Context) error {
	var left []thing
	var last error
	shown := map[thing]bool{}
	err := wait.PollUntilContextTimeout(ctx, time.Second, sweepWithin, true,
		func(ctx context.Context) (bool, error) {
			var now []thing
			if now, last = p.things(ctx, Label); hcloud.IsError(last, hcloud.ErrorCodeUnauthorized) {
				return false, last
			}
			if last != nil {
				return false, nil
			}
			left = now
			for _, t := range left {
				if !shown[t] {
					p.progress("deleting " + t.String())
				}
				shown[t] = true
				path := fmt.Sprintf("/%s/%d", t.kind, t.ID)
				last = errors.Join(last, p.send(ctx, http.MethodDelete, path, nil))
			}
			return len(left) == 0, nil
		})
	if err != nil {
		return fmt.Errorf("not everything was deleted, and it costs until it is: %v: %w", left,
			errors.Join(last, err))
	}
	return nil
}
