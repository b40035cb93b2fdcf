package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"

	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// realEndpoint is that of the cloud.
const realEndpoint = "https://api.hetzner.cloud/v1"

// access is the way to a project.
type access struct {
	endpoint string
	token    secret.Text
	// without: there was no token, and the endpoint is on this machine, where it may need none.
	without bool
}

// errNoToken is why nothing can be asked.
var errNoToken = errors.New("there is no token for the cloud: set HCLOUD_TOKEN, or give --token-file, with permission to read and write")

// explain is an error of a request, with its cause where that was no token at all.
func (a access) explain(err error) error {
	if a.without && project.Unauthorized(err) {
		return errNoToken
	}
	return err
}

// access finds endpoint and token.
func (m *measuring) access(ctx context.Context, w process, o *options) (access, error) {
	a := access{endpoint: cmp.Or(m.endpoint, w.getenv("HCLOUD_ENDPOINT"), realEndpoint)}
	var client kubernetes.Interface
	if o.tokenSecret != "" {
		var err error
		if client, err = o.client(); err != nil {
			return a, err
		}
	}
	o.writes = true
	token, missing, err := o.token(ctx, w, client)
	switch {
	case err != nil:
		return a, err
	case missing == "":
		a.token = token.Text
	case a.onLoopback():
		// A simulator without a token takes any.
		a.token, a.without = secret.New("none"), true
	default:
		return a, errNoToken
	}
	if a.host() != "" && !a.encrypted() && !a.onLoopback() {
		return a, fmt.Errorf("--endpoint %s is asked without encryption, and the token would be read on the way: write https, or an address of this machine", a.host())
	}
	return a, nil
}

// host is the endpoint's, for people.
func (a access) host() string {
	u, err := url.Parse(a.endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}

func (a access) encrypted() bool {
	u, err := url.Parse(a.endpoint)
	return err == nil && u.Scheme == "https"
}

// onLoopback reports whether the endpoint is on this machine: a simulator.
func (a access) onLoopback() bool {
	host := a.host()
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// project opens the project for a run.
func (a access) project(run string, plan project.Plan, progress func(string)) (*project.Project, error) {
	return project.New(project.Options{
		Token: a.token, Endpoint: a.endpoint, Run: run, Plan: plan, Version: release(), Progress: progress,
	})
}

// newRun names a run.
func newRun() (string, error) { return project.NewRun(time.Now(), rand.Reader) }

// release is the program's version. One that was built without the release's flags has none.
func release() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unreleased"
	}
	return v
}
