package hetzner_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// answering is a client of an API whose response to every request is body.
func answering(t *testing.T, body *string) *hetzner.Client {
	t.Helper()
	c, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
		Registry: metrics.NewKubeRegistry(),
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(*body)), Request: r,
			}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const wholeNetwork = `{"network":{"id":5,"name":"cluster","ip_range":"10.0.0.0/8","subnets":[],
"routes":[{"destination":"10.244.1.0/24","gateway":"10.0.0.2"}],"servers":[]}}`

// request requests an object with ID 5, or one in a network with that ID.
type request func(context.Context, *hetzner.Client, *hetzner.Network) error

// A response of 200 that lacks the requested object, or contains another one, is an error: not a
// network without routes, a server without addresses, or a successful change.
func TestAnAnswerThatIsNotAboutTheRequestIsAnError(t *testing.T) {
	for name, request := range map[string]request{
		"routes": func(ctx context.Context, _ *hetzner.Client, n *hetzner.Network) error {
			_, err := n.List(ctx)
			return err
		},
		"a network": func(ctx context.Context, c *hetzner.Client, _ *hetzner.Network) error {
			_, err := c.Network(ctx, "5")
			return err
		},
		"a change of a network": func(ctx context.Context, _ *hetzner.Client, n *hetzner.Network) error {
			return n.ExposeRoutes(ctx)
		},
		"an action": func(ctx context.Context, _ *hetzner.Client, n *hetzner.Network) error {
			return n.Add(ctx, entry("10.244.1.0/24", "10.0.0.2"))
		},
		"a server": func(ctx context.Context, c *hetzner.Client, _ *hetzner.Network) error {
			_, err := c.Servers(5).Get(ctx, 5)
			return err
		},
		"a server by its name": func(ctx context.Context, c *hetzner.Client, _ *hetzner.Network) error {
			_, err := c.Servers(5).Look(ctx, []cloud.Question{{Name: "a", Since: time.Now()}})
			return err
		},
		"a primary IP": func(ctx context.Context, c *hetzner.Client, _ *hetzner.Network) error {
			_, err := c.LoadBalancers().PrimaryIPs(ctx, []string{"5"})
			return err
		},
	} {
		for _, body := range []string{
			`{}`, `[]`, `null`, `{"network":null,"server":null,"primary_ip":null,"action":null}`,
			`{"network":{},"server":{},"primary_ip":{},"action":{}}`,
			strings.ReplaceAll(wholeNetwork, `"id":5`, `"id":6`), `{"server":{"id":6,"name":"a"}}`,
		} {
			t.Run(fmt.Sprint(name, " ", body), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					now := wholeNetwork
					c := answering(t, &now)
					n, err := c.Network(t.Context(), "5")
					if err != nil {
						t.Fatal(err)
					}
					now = body
					if err := request(t.Context(), c, n); err == nil {
						t.Error("no error")
					}
				})
			})
		}
	}
}

// A network that has only an ID is incomplete, not without routes.
func TestANetworkWithoutItsRangeIsIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := wholeNetwork
		n, err := answering(t, &now).Network(t.Context(), "5")
		if err != nil {
			t.Fatal(err)
		}
		now = `{"network":{"id":5}}`
		if table, err := n.List(t.Context()); err == nil {
			t.Errorf("the table is %v, no error", table)
		}
	})
}
