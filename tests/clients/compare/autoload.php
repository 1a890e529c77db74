<?php
// Classes of Symfony's sources in the working directory, and of what Debian has packaged.

declare(strict_types=1);

require 'Predis/autoload.php';
require 'Psr/Log/autoload.php';
require 'Symfony/Contracts/Deprecation/autoload.php';
spl_autoload_register(static function (string $class): void {
    $file = getcwd().'/src/'.strtr($class, '\\', '/').'.php';
    if (is_file($file)) {
        require $file;
    }
});
