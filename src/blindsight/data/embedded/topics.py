"""Topics of the `forum`, and each topic's own words, the most frequent first."""

__all__ = ["ADJECTIVES", "PREFIXES", "STEMS", "TOPICS"]

TOPICS: dict[str, dict[str, str]] = {
    "databases": {
        "things": "query, table, index, backup, view, replica, schema, migration, trigger, cluster, join, lock, cursor",
        "acts": "rebuild the index; run the migration; dump the table; add a column; rename a table; "
        "join two tables; restore the backup; move the data to another disk; import a csv file; "
        "explain the query; drop the old view",
        "fails": "takes forever; locks the whole table; returns every row twice; ignores the index; "
        "eats all the memory; loses the last row; sorts the numbers as text; runs into a deadlock; comes back empty",
        "errors": "deadlock detected; relation does not exist; duplicate key; too many connections; disk full",
        "places": "on the replica; on the test server; in production; on my laptop; in the nightly job",
    },
    "networks": {
        "things": "router, switch, cable, firewall, packet, port, tunnel, access point, bridge, subnet, proxy, socket",
        "acts": "open the port; restart the router; set a static address; change the cable; capture the packets; "
        "add a firewall rule; split the network; forward a port; set up a tunnel; update the firmware; lower the mtu",
        "fails": "drops the connection; loses packets; falls back to slow mode; gets no address; "
        "answers only to ping; forgets its settings; blocks everything; shows two addresses; "
        "disappears from the list",
        "errors": "connection refused; no route to host; request timed out; address already in use; host unreachable",
        "places": "behind the firewall; at the office; over wifi; on the guest network; in the cellar",
    },
    "webpages": {
        "things": "page, button, form, menu, font, layout, script, stylesheet, cookie, header, footer, picture, link",
        "acts": "center the box; load the font; hide the menu; validate the form; cache the page; "
        "shrink the pictures; align the columns; redirect the old links; move the script to the footer; "
        "set the cookie; print the page",
        "fails": "jumps around; stays blank; looks broken on phones; loads twice; overlaps the menu; "
        "ignores my style; flickers; scrolls sideways; forgets what I typed; shows the old version",
        "errors": "undefined is not a function; 404 not found; mixed content blocked; unexpected token; "
        "502 bad gateway",
        "places": "in the browser; on my phone; on the start page; in private mode; on the staging site",
    },
    "containers": {
        "things": "container, image, volume, pod, registry, layer, build, deployment, secret, manifest, "
        "pipeline, service",
        "acts": "build the image; mount the volume; pull from the registry; restart the pod; pin the version; "
        "clean up old layers; roll back the deployment; pass the secret; expose the port; run it as another account",
        "fails": "restarts in a loop; runs out of memory; cannot find the volume; never becomes ready; "
        "ignores the limits; pulls the wrong image; exits with code {number}; keeps the old config; "
        "takes ages to build",
        "errors": "image not found; crash loop; permission denied; no space left on device; exec format error",
        "places": "on the cluster; on the build server; in staging; on one node only; on arm",
    },
    "microcontrollers": {
        "things": "board, sensor, pin, display, motor, battery, bootloader, timer, resistor, bus, relay, sketch, led",
        "acts": "flash the board; read the sensor; pull the pin up; solder the header; slow down the bus; "
        "add a capacitor; measure the current; wake it from sleep; debounce the button; wire the display; "
        "swap the battery",
        "fails": "resets itself; gets hot; reads {number} all the time; never wakes up; shows garbage; "
        "blinks twice and dies; drains the battery; hangs on boot; misses every second step; wants another driver",
        "errors": "device not recognized; checksum mismatch; brownout detected; no such port; verification failed",
        "places": "on the breadboard; on battery power; in the garden; on the new revision; over usb",
    },
    "printing": {
        "things": "nozzle, bed, layer, filament, spool, extruder, model, support, belt, fan, slicer, print, corner",
        "acts": "level the bed; clean the nozzle; dry the filament; tighten the belt; lower the temperature; "
        "add a brim; slow down the first layer; replace the extruder; print it upside down; "
        "raise the fan speed; scale the model",
        "fails": "does not stick; warps at the corners; strings like a spider; clogs after {number} layers; "
        "shifts sideways; leaves gaps; makes a grinding noise; skips steps; looks like spaghetti",
        "errors": "thermal runaway; filament runout; heating failed; endstop hit; model is not watertight",
        "places": "in the cold garage; with the new spool; on the glass plate; on large parts; in the enclosure",
    },
    "statistics": {
        "things": "model, sample, variable, plot, outlier, mean, interval, test, regression, dataset, residual, factor",
        "acts": "fit the model; drop the outliers; plot the residuals; scale the variables; bootstrap the interval; "
        "impute the missing values; take the logarithm; compare the groups; split the data; report the effect size",
        "fails": "does not converge; returns a negative variance; depends on the seed; overfits; "
        "ignores the weights; gives a p-value of 0.{number}; explains nothing; changes sign; looks too good to be true",
        "errors": "singular matrix; did not converge; na in data; factor has one level; contrasts not defined",
        "places": "on the full data; in the second wave; with {number} rows; in the small group; in my thesis",
    },
    "phones": {
        "things": "app, screen, keyboard, battery, notification, widget, camera, charger, contact, setting, "
        "update, tablet",
        "acts": "clear the cache; turn off the notifications; move the photos; reset the settings; "
        "unlock the screen; install the update; pair the headset; sync the contacts; free some space; "
        "change the keyboard; root it",
        "fails": "freezes; drains overnight; crashes on start; forgets the password; stops syncing; "
        "rotates by itself; will not charge; sends everything twice; shows an old date",
        "errors": "app not installed; storage almost full; something went wrong; sim not found; try again later",
        "places": "on the tablet; on the train; on my old phone; while charging; in flight mode",
    },
    "storage": {
        "things": "disk, backup, partition, array, snapshot, folder, archive, drive, share, filesystem, "
        "checksum, mirror",
        "acts": "resize the partition; scrub the array; restore the snapshot; replace the drive; "
        "check the filesystem; copy everything to the new disk; verify the checksums; mount the share; "
        "encrypt the backup; compare the folders",
        "fails": "clicks; shows up read-only; is full again; copies at {number} MB per minute; degrades; "
        "skips long names; spins up every hour; corrupts large files; vanishes after sleep",
        "errors": "input/output error; read-only file system; checksum error; disk not ready; stale file handle",
        "places": "on the nas; in the raid; over usb; on the external drive; in the attic",
    },
    "games": {
        "things": "level, player, engine, shader, texture, camera, enemy, sound, score, sprite, mesh, frame, save file",
        "acts": "bake the lights; fix the camera; add a second player; load the texture; save the score; "
        "tune the jump; port it to linux; merge the meshes; pause the music; cut the level in two; write a shader",
        "fails": "falls through the floor; stutters; renders upside down; plays the sound twice; "
        "runs at {number} frames; turns pink; forgets the score; walks into walls; crashes in the menu",
        "errors": "null reference; shader failed to compile; out of video memory; missing asset; stack overflow",
        "places": "in the editor; in the release build; on weak hardware; in level {number}; with a gamepad",
    },
}

ADJECTIVES = (
    "old new small slow fast big strange simple cheap broken quiet stable weird noisy tiny fragile flaky solid "
    "heavy obscure modern hot cold clean messy ancient safe silly clever bulky thin loose tight spare empty "
    "random rusty smooth rough shiny dusty homemade borrowed generic modular portable wireless verbose minimal "
    "robust sluggish crisp bloated elegant clumsy reliable unstable readable outdated experimental temporary "
    "static dynamic compact narrow"
)
PREFIXES = "auto re pre multi sub hyper micro meta inter over post semi cross de dual un fast lazy soft hard deep raw"
STEMS = (
    "cache sync index mount port queue buffer route thread block map graph scale frame link load lock merge parse "
    "patch pool probe render sample scan script shard shift stack state stream table tag task tile trace tree "
    "type value view wave write zone trim layer limit match node fetch flush clock pulse grid chain watch boot "
    "fold hash sort spin"
)
"""A prefix and a stem form a technical term: autosync, presample, hyperqueue."""
