//go:build linux

package kubeadm

import (
	"context"
	"errors"
	"os"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// packed is the variable by which the process in its own namespace finds the folder of Enter. Its
// files are big, and made once for all clusters of a process.
const packed = "UNDERLAY_IMAGES"

// Packed is the folder with images, in a process that has entered.
func Packed() string { return os.Getenv(packed) }

// Enter puts the process into a lab's namespace. Where clusters run there is no internet, which the
// first build of anything needs, so the folder with images is made before: by Pack, or by what
// puts more into it. It is the caller's to remove.
func Enter(ctx context.Context, pack func(context.Context) (folder string, err error)) (folder string, err error) {
	if netlab.Entered() {
		folder = Packed()
	} else if folder, err = pack(ctx); err == nil {
		err = os.Setenv(packed, folder)
	}
	if err == nil {
		err = netlab.Enter() // from outside it doesn't return but with an error
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}
