package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// errGone is what was made and isn't there any more.
var errGone = errors.New("it was removed meanwhile, by somebody else")

// lost reports whether an error of a creation leaves open whether the thing is there: no answer
// came, or none of the API's own, or an earlier request has made it.
func lost(err error) bool {
	if err == nil {
		return false
	}
	said, is := code(err)
	return !is || slices.Contains([]string{
		"uniqueness_error", "service_error", "server_error", "timeout", "bad_gateway", "unavailable",
	}, said)
}

// made makes something, or, if the answer was lost, finds what has been made by its name, which is
// of this run alone. If it isn't there either, the error is that of making it.
func made[T any](ctx context.Context, b *Bench, name string, make func() (*T, error),
	byName func(context.Context, string) (*T, *hcloud.Response, error),
) (thing *T, err error) {
	err = b.again(ctx, func() error {
		if thing, err = make(); !lost(err) {
			return err
		}
		found, _, unknown := byName(ctx, name)
		if unknown == nil && found != nil {
			thing, err = found, nil
		}
		return err
	})
	return thing, err
}

// createLoadBalancer makes one of the bench's type with a name and the labels, and waits for it.
func (b *Bench) createLoadBalancer(ctx context.Context, name string, opts hcloud.LoadBalancerCreateOpts,
) (*hcloud.LoadBalancer, error) {
	opts.Name, opts.Labels = b.Project.Name(name), b.Project.Labels()
	opts.LoadBalancerType = &hcloud.LoadBalancerType{Name: b.LoadBalancerType}
	var action *hcloud.Action
	balancer, err := made(ctx, b, opts.Name, func() (*hcloud.LoadBalancer, error) {
		result, _, err := b.client().LoadBalancer.Create(ctx, opts)
		action = result.Action
		return result.LoadBalancer, err
	}, b.client().LoadBalancer.GetByName)
	if err != nil {
		return nil, err
	}
	return balancer, b.await(ctx, action)
}

// await waits for actions, of which an answer that was lost has told none. It looks at all of them
// at the same time: how long one took is known only to who looks when it ends.
func (b *Bench) await(ctx context.Context, actions ...*hcloud.Action) error {
	errs := make([]error, len(actions))
	var all sync.WaitGroup
	for i, action := range actions {
		if action == nil {
			continue
		}
		all.Go(func() {
			if _, _, err := b.Project.Await(ctx, action); err != nil {
				errs[i] = fmt.Errorf("%s: %w", action.Command, err)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
