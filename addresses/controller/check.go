package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/addresses"
)

// Orphan is an address in use that is in no pool.
type Orphan struct {
	Address netip.Addr
	Users   []addresses.Share
}

// Problem names the Services that have the address.
func (o Orphan) Problem() string {
	names := make([]string, len(o.Users))
	for i, s := range o.Users {
		names[i] = s.Namespace + "/" + s.Name
	}
	return fmt.Sprintf("is in no pool any more, and Services have it: %s", strings.Join(names, ", "))
}

// Remedy returns the steps to fix it.
func (o Orphan) Remedy() string {
	return "put the address back into a pool, with onRequest: true if no other Service is to get it, until those Services are deleted or have another one"
}

// Check returns the addresses that Services have in the stored ledger and no pool contains. It
// ignores a damaged ledger: Run reports it and changes nothing.
func Check(
	ctx context.Context, client kubernetes.Interface, namespace string, pools []Pool,
) ([]Orphan, error) {
	found, err := store{client, namespace}.read(ctx)
	if errors.Is(err, errDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var orphans []Orphan
	for _, e := range found.ledger.Entries() {
		if _, known := poolOf(pools, e.Address); !known && len(e.Shares) > 0 {
			orphans = append(orphans, Orphan{e.Address, e.Shares})
		}
	}
	return orphans, nil
}
