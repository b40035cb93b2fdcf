package agent

import (
	"cmp"
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

// The ConfigMap of the ledger.
const (
	LedgerNamespace = "kube-system"
	LedgerName      = "underlay-addresses"
	LedgerKey       = "ledger"
)

// Times of reading.
const (
	// answerWithin is how long the API server may take to answer before this counts as no answer. A
	// doubt too many costs some probes.
	answerWithin = time.Second
	// retryAtFirst and retryAtMost bound the pause between two attempts.
	retryAtFirst, retryAtMost = 100 * time.Millisecond, time.Second
	// watchFor is how long a watch lasts before the next list.
	watchFor = 5 * time.Minute
)

// Reader follows the ledger.
type Reader struct {
	ConfigMaps ConfigMaps
	// Read is called with each ledger that is not the one before, in order, and with the UID of the
	// ConfigMap that it is in.
	Read func(l addresses.Ledger, uid string)
	// Doubt is called when the latest ledger may be out of date, and when it isn't any more. As long
	// as it was not called it may be.
	Doubt func(doubt bool, why error)

	last          version
	unreadable    error // why the latest ledger can't be read; nil: it can
	told, doubted bool
}

// version is what tells one content of the ConfigMap from another.
type version struct{ uid, resourceVersion string }

// Run follows until the context ends.
func (r *Reader) Run(ctx context.Context) {
	for pause := retryAtFirst; ctx.Err() == nil; pause = min(pause*2, retryAtMost) {
		start := time.Now()
		began, err := r.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case !began:
			r.doubt(true, err)
		case err != nil: // the next attempt says whether that means something
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
	if !r.told || doubt != r.doubted {
		r.told, r.doubted = true, doubt
		r.Doubt(doubt, why)
	}
}

// follow lists and watches until the watch ends. began: it had begun.
func (r *Reader) follow(ctx context.Context) (began bool, err error) {
	only := kube.Only(LedgerName)
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
			if err := r.happened(ctx, event); err != nil {
				return true, err
			}
		}
	}
}

// list asks for the latest state: without a resourceVersion the answer is no older than the
// question (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func (r *Reader) list(ctx context.Context, only metav1.ListOptions) (*corev1.ConfigMapList, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	listed, err := r.ConfigMaps.List(ctx, only)
	if err != nil {
		return nil, fmt.Errorf("reading the ledger of addresses %s/%s: %w", LedgerNamespace, LedgerName, err)
	}
	if len(listed.Items) == 0 {
		r.gone(ctx)
	}
	for i := range listed.Items {
		r.seen(ctx, &listed.Items[i])
	}
	return listed, nil
}

// watch opens a watch, which lives by ctx, and takes no longer for it than an answer may take.
func (r *Reader) watch(ctx context.Context, cancel func(), only metav1.ListOptions) (watch.Interface, error) {
	late := time.AfterFunc(answerWithin, cancel)
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
		return nil, fmt.Errorf("watching the ledger of addresses %s/%s: %w", LedgerNamespace, LedgerName, err)
	}
	return watching, nil
}

func (r *Reader) happened(ctx context.Context, event watch.Event) error {
	switch event.Type {
	case watch.Added, watch.Modified:
		if changed, ok := event.Object.(*corev1.ConfigMap); ok {
			r.seen(ctx, changed)
		}
	case watch.Deleted:
		r.gone(ctx)
	case watch.Error:
		return fmt.Errorf("watching the ledger of addresses: %w", apierrors.FromObject(event.Object))
	}
	return nil
}

// seen reads the ledger. One that can't be read changes nothing, but that it may say something else:
// what the node holds stays, in doubt.
func (r *Reader) seen(ctx context.Context, stored *corev1.ConfigMap) {
	now := version{string(stored.UID), stored.ResourceVersion}
	if now == r.last {
		return
	}
	text := stored.Data[LedgerKey]
	if text == "" { // an empty ledger has a text, too
		r.gone(ctx)
		return
	}
	ledger, err := addresses.ParseLedger([]byte(text))
	if err != nil {
		klog.FromContext(ctx).Error(err, "The ledger of addresses can't be read; what this node holds stays "+
			"as it is. Restore the key, or delete the ConfigMap to have it rebuilt", "configMap", LedgerNamespace+"/"+LedgerName, "key", LedgerKey)
		r.last, r.unreadable = now, err
		return
	}
	if r.last.uid != "" && r.last.uid != now.uid {
		klog.FromContext(ctx).Info("The ledger of addresses was made anew",
			"configMap", LedgerNamespace+"/"+LedgerName)
	}
	r.last, r.unreadable = now, nil
	r.Read(ledger, now.uid)
}

// gone is not the same as an empty ledger: the manager makes one anew from what Services say, and
// until then nothing is given up.
func (r *Reader) gone(ctx context.Context) {
	never := version{}
	if r.last == never {
		return
	}
	klog.FromContext(ctx).Info("The ledger of addresses is gone; what this node holds stays as it is",
		"configMap", LedgerNamespace+"/"+LedgerName, "uid", cmp.Or(r.last.uid, "unknown"))
	r.last, r.unreadable = never, nil
}
