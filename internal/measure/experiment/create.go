package experiment

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// errGone is what was made and isn't there any more.
var errGone = errors.New("it was removed meanwhile, by somebody else")

// created makes something, again while the API has no time for it.
func created[T any](ctx context.Context, b *Bench, make func() (*T, error)) (thing *T, err error) {
	err = b.again(ctx, func() error {
		thing, err = make()
		return err
	})
	return thing, err
}

// lazy is something shared that is made when it is asked for first.
type lazy[T any] struct {
	thing *T
	err   error // why it can't be made
}

func (l *lazy[T]) get(make func() (*T, error)) (*T, error) {
	if l.thing == nil && l.err == nil {
		l.thing, l.err = make()
	}
	return l.thing, l.err
}

// createLoadBalancer makes one of the bench's type with a name and the labels, and waits for it.
func (b *Bench) createLoadBalancer(ctx context.Context, name string, opts hcloud.LoadBalancerCreateOpts,
) (*hcloud.LoadBalancer, error) {
	opts.Name, opts.Labels = b.Project.Name(name), b.Project.Labels()
	opts.LoadBalancerType = &hcloud.LoadBalancerType{Name: b.LoadBalancerType}
	var action *hcloud.Action
	balancer, err := created(ctx, b, func() (*hcloud.LoadBalancer, error) {
		result, _, err := b.client().LoadBalancer.Create(ctx, opts)
		action = result.Action
		return result.LoadBalancer, err
	})
	if err != nil {
		return nil, err
	}
	return balancer, b.await(ctx, action)
}

// await waits for actions; nil is none. It looks at all of them at the same time: how long one took is known only to who looks when it ends.
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
