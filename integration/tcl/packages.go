package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// installedSuite is the suite of the redis-server that is installed.
func installedSuite(ctx context.Context, cache string) (*suite, error) {
	says, err := serverVersion(ctx, "redis-server")
	if err != nil {
		return nil, err
	}
	want := says[strings.LastIndexByte(says, ' ')+1:]
	su := &suite{dir: filepath.Join(cache, "redis-"+want), name: "redis " + want}
	if su.present() {
		return su, nil
	}
	return su, inApt(ctx, cache, "", func(a *apt) error {
		versions, err := a.versions(ctx, "redis")
		if err != nil {
			return err
		}
		// Of several packages the last, which has the most security fixes and their tests.
		for _, v := range slices.Backward(versions) {
			if upstream(v) == want {
				return a.unpack(ctx, su.dir, "redis", v)
			}
		}
		return fmt.Errorf("the mirrors have redis %s, none the installed %s: name a suite with -suite", strings.Join(versions, ", "), want)
	})
}

// debianSuite is the suite, and the server, of a package of some Debian release.
func debianSuite(ctx context.Context, cache, release, pkg string) (*suite, error) {
	dir := filepath.Join(cache, pkg+"-"+release)
	su := &suite{dir: dir}
	server := filepath.Join(dir+"-server", "usr", "bin", pkg+"-server")
	if !su.present() {
		err := inApt(ctx, cache, release, func(a *apt) error {
			versions, err := a.versions(ctx, pkg)
			if err != nil {
				return err
			}
			if len(versions) == 0 {
				return fmt.Errorf("%s has no source package %s", release, pkg)
			}
			if err := a.binaries(ctx, dir+"-server", pkg); err != nil {
				return err
			}
			return a.unpack(ctx, dir, pkg, versions[0])
		})
		if err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(server); err == nil {
		su.server = server
	}
	note, err := os.ReadFile(filepath.Join(dir, "SOURCE"))
	if err != nil {
		return nil, err
	}
	su.name = pkg
	if f := strings.Fields(string(note)); len(f) > 1 {
		su.name += " " + upstream(f[1])
	}
	return su, nil
}

// inApt runs do with a private apt that is gone afterwards.
func inApt(ctx context.Context, cache, release string, do func(*apt) error) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, "apt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	progress("tcl: fetching the suite from the mirrors apt is set up with")
	a, err := newApt(ctx, dir, release)
	if err == nil {
		err = do(a)
	}
	if err != nil {
		return fmt.Errorf("cannot fetch the suite: %w", err)
	}
	return nil
}

// unpack fetches a source package and keeps its tests and licence in dir.
func (a *apt) unpack(ctx context.Context, dir, pkg, version string) error {
	file, sum, err := a.source(ctx, pkg, version)
	if err != nil {
		return err
	}
	return unpackInto(dir, func(tmp string) (string, error) {
		tree := filepath.Join(tmp, "tree")
		// apt has checked the signature of the index, and we the sums in it.
		if _, err := output(ctx, exec.Command("dpkg-source", "--no-check", "-x", file, tree)); err != nil {
			return "", err
		}
		note := fmt.Sprintf("%s %s %s %s\n", pkg, version, filepath.Base(file), sum)
		return tree, os.WriteFile(filepath.Join(tree, "SOURCE"), []byte(note), 0o644)
	})
}

// binaries unpacks <pkg>-server and <pkg>-tools into dir without installing them;
// what they link to has to be there.
func (a *apt) binaries(ctx context.Context, dir, pkg string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, name := range []string{pkg + "-server", pkg + "-tools"} {
		if _, err := a.run(ctx, "apt-get", "-q", "download", name); err != nil {
			return err
		}
		debs, err := filepath.Glob(filepath.Join(a.dir, "files", name+"_*.deb"))
		if err != nil || len(debs) == 0 {
			return fmt.Errorf("apt-get downloaded no %s", name)
		}
		if _, err := output(ctx, exec.Command("dpkg-deb", "-x", debs[0], dir)); err != nil {
			return err
		}
	}
	return nil
}
