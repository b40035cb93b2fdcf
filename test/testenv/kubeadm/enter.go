//go:build linux

package kubeadm

import (
	"context"
	"errors"
	"os"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// packed is the variable that passes the folder of Enter to the process in its own namespace. Its
// files are large, and created once for all clusters of a process.
const packed = "UNDERLAY_IMAGES"

// Packed is the folder with images, in a process that Enter has started.
func Packed() string { return os.Getenv(packed) }

// Enter moves the process into a lab's namespace. The namespace has no internet, which the first
// build of anything needs, so the folder with images is created before: by Pack, or by a function
// that adds to it. The caller removes it.
func Enter(
	ctx context.Context, pack func(context.Context) (folder string, err error),
) (folder string, err error) {
	if netlab.Entered() {
		folder = Packed()
	} else if folder, err = pack(ctx); err == nil {
		err = os.Setenv(packed, folder)
	}
	if err == nil {
		err = netlab.Enter() // outside of the namespace it returns only on errors
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}
