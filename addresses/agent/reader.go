package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// LedgerNamespace is the namespace of the ledger's ConfigMap.
const LedgerNamespace = metav1.NamespaceSystem

const (
	// replyTimeout limits a request to the API server. A needless doubt costs a few probes.
	replyTimeout              = time.Second
	retryAtFirst, retryAtMost = 100 * time.Millisecond, time.Second
	// watchFor is the timeout of a watch, after which the reader lists again.
	watchFor = 5 * time.Minute
)

// Reader reads the ledger and its changes.
type Reader struct {
	ConfigMaps ConfigMaps
	// Read is called with each new ledger, in order, and with the UID of its ConfigMap.
	Read func(l addresses.Ledger, uid string)
	// Doubt is called when the ledger may be out of date, and when it is current again. Before the
	// first call it may be out of date.
	Doubt func(doubt bool, why error)

	last              string // UID and resourceVersion
	unreadable        error  // of parsing the latest ledger
	notified, doubted bool
}

func (r *Reader) Run(ctx context.Context) {
	for pause := retryAtFirst; ctx.Err() == nil; pause = min(pause*2, retryAtMost) {
		start := time.Now()
		began, err := r.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case !began:
			r.doubt(true, err)
		case err != nil: // in doubt only if the next attempt fails too
			klog.FromContext(ctx).V(2).Info("The watch of the ledger of addresses ended", "err", err)
		}
		if began && time.Since(start) >= retryAtMost {
			pause = retryAtFirst
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

func (r *Reader) doubt(doubt bool, why error) {
	if !r.notified || doubt != r.doubted {
		r.notified, r.doubted = true, doubt
		r.Doubt(doubt, why)
	}
}

// follow lists and watches until the watch ends. began: the watch was opened.
func (r *Reader) follow(ctx context.Context) (began bool, err error) {
	only := kube.Only(addresses.LedgerName)
	latest, err := r.list(ctx, only)
	if err != nil {
		return false, err
	}
	only.ResourceVersion = latest.ResourceVersion
	seconds := int64(watchFor / time.Second)
	only.TimeoutSeconds = &seconds
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching, err := r.watch(ctx, cancel, only)
	if err != nil {
		return false, err
	}
	defer watching.Stop()
	for {
		r.doubt(r.unreadable != nil, r.unreadable)
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case event, open := <-watching.ResultChan():
			if !open {
				return true, nil
			}
			if err := r.handle(ctx, event); err != nil {
				return true, err
			}
		}
	}
}

// list reads the latest state: it sets no resourceVersion
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func (r *Reader) list(ctx context.Context, only metav1.ListOptions) (*corev1.ConfigMapList, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	listed, err := r.ConfigMaps.List(ctx, only)
	if err != nil {
		return nil,
			fmt.Errorf("reading the ledger of addresses %s/%s: %w", LedgerNamespace, addresses.LedgerName,
				err)
	}
	var stored *corev1.ConfigMap
	if len(listed.Items) > 0 {
		stored = &listed.Items[0]
	}
	r.observe(ctx, stored)
	return listed, nil
}

// watch opens a watch within replyTimeout, or cancels ctx.
func (r *Reader) watch(
	ctx context.Context, cancel func(), only metav1.ListOptions,
) (watch.Interface, error) {
	late := time.AfterFunc(replyTimeout, cancel)
	watching, err := r.ConfigMaps.Watch(ctx, only)
	inTime := late.Stop()
	switch {
	case err != nil && !inTime:
		err = errors.Join(err, context.DeadlineExceeded)
	case err == nil && !inTime:
		watching.Stop()
		err = context.DeadlineExceeded
	}
	if err != nil {
		return nil,
			fmt.Errorf("watching the ledger of addresses %s/%s: %w", LedgerNamespace, addresses.LedgerName,
				err)
	}
	return watching, nil
}

func (r *Reader) handle(ctx context.Context, event watch.Event) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		if changed, ok := event.Object.(*corev1.ConfigMap); ok {
			r.observe(ctx, changed)
		}
	case watch.Deleted:
		r.observe(ctx, nil)
	case watch.Error:
		return fmt.Errorf("watching the ledger of addresses: %w", apierrors.FromObject(event.Object))
	}
	return nil
}

// observe parses the ledger. On an error the node keeps its addresses, in doubt. If it is missing,
// unlike with an empty ledger, the node releases no address: the manager rebuilds the ledger from
// the status of Services. The text of a ledger without entries is not empty.
func (r *Reader) observe(ctx context.Context, stored *corev1.ConfigMap) {
	now := ""
	if stored != nil && stored.Data[addresses.LedgerKey] != "" {
		now = string(stored.UID) + " " + stored.ResourceVersion
	}
	if now == r.last {
		return
	}
	r.last, r.unreadable = now, nil
	logger := klog.FromContext(ctx).WithValues("configMap", LedgerNamespace+"/"+addresses.LedgerName)
	if now == "" {
		logger.Info("The ledger of addresses is missing; this node keeps its addresses")
		return
	}
	ledger, err := addresses.ParseLedger([]byte(stored.Data[addresses.LedgerKey]))
	if err != nil {
		logger.Error(err,
			"The ledger of addresses can't be read; this node keeps its addresses. Restore the key, "+
				"or delete the ConfigMap to have it rebuilt", "key", addresses.LedgerKey)
		r.unreadable = err
		return
	}
	r.Read(ledger, string(stored.UID))
}
